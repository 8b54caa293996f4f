// SPDX-License-Identifier: Apache-2.0

// Package strictjson reads JSON messages between processes of mcastlab: an unknown field is an error.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Decode reads the one value that b holds. A field that v does not have, and anything after the
// value, is an error.
func Decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something comes behind its end")
	}
	return nil
}
