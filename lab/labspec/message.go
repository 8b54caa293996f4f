// SPDX-License-Identifier: Apache-2.0

package labspec

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/core/strictjson"
	"github.com/mcastlab/mcastlab/lab"
)

// Schema names the format in which a lab travels between processes, in which controllers store it, and
// in which it is kept on the disk while it is up. A change of the meaning of a message changes the
// name; so does a field whose zero value differs from the meaning of messages without it.
const Schema = "mcastlab/lab/v1"

// messageMax bounds the bytes of a message. It leaves room for a command of the controllers around
// it.
const messageMax = 2 << 20

// message is the JSON form of a lab with all its defaults. The tags json of package lab and of the
// settings of workloads name its fields, so that a key of the lab file can have another name, and a
// unit another spelling: rates are in bit/s, sizes in bytes, durations in picoseconds, timeouts
// codes of the verbs. A field that is zero is left out; it never has the default of a lab file.
type message struct {
	Schema string `json:"schema"`
	lab.Lab
}

// Encode returns the message of a lab that was read from a file. Equal labs have equal bytes. It is
// an error if Decode refuses the message: if it is too long, or a text in it is not UTF-8.
func Encode(l *lab.Lab) ([]byte, error) {
	b, err := json.Marshal(message{Schema, *l})
	if err == nil {
		_, err = decode(b)
	}
	if err != nil {
		return nil, fmt.Errorf("write lab %s: %w", l.Name, err)
	}
	return b, nil
}

// Decode reads the message of a lab and checks the lab, as reading its file does. It returns an error
// for another schema, and for anything else that Encode does not write.
func Decode(b []byte) (*lab.Lab, error) {
	l, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("read lab: %w", err)
	}
	return l, nil
}

func decode(b []byte) (*lab.Lab, error) {
	if len(b) > messageMax {
		return nil, fmt.Errorf("%d bytes are more than a message of a lab may have (%d)", len(b), messageMax)
	}
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("it is no message of schema %q: %w", Schema, err)
	}
	if head.Schema != Schema {
		return nil, fmt.Errorf("the schema is %q, and this version reads %q", head.Schema, Schema)
	}
	var m message
	if err := strictjson.Decode(b, &m); err != nil {
		return nil, err
	}
	if err := of(&m.Lab).Check(); err != nil {
		return nil, err
	}
	// What JSON or the check was lenient about, a name in capitals, a field that appears twice or
	// a default that the check filled in, is not in the bytes of the lab as it was read.
	again, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if at, same := differ(b, again); !same {
		return nil, fmt.Errorf("byte %d is not what this version writes for such a lab", at)
	}
	return &m.Lab, nil
}

// differ returns the index of the first byte in which a and b differ; same is true if there is none.
func differ(a, b []byte) (at int, same bool) {
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	return at, at == len(a) && at == len(b)
}
