// SPDX-License-Identifier: Apache-2.0

// Package examples reads the example labs that are built in.
package examples

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/examples"
	"github.com/mcastlab/mcastlab/lab"
)

const suffix = ".mcl.yml"

// Names returns the names of the labs, in alphabetical order.
func Names() (names []string) {
	all, _ := fs.Glob(examples.Files, "*"+suffix) // the pattern is valid
	for _, file := range all {
		names = append(names, strings.TrimSuffix(file, suffix))
	}
	return names
}

// UnknownError is the error of a name that no lab has.
type UnknownError struct{ Name string }

// Error implements error.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("no example %q%s", e.Name, setting.Suggest(e.Name, Names()))
}

// Read reads a lab and the points of its sweep, from a temporary folder, which holds the files that it names, too. A name that no
// lab has is an *UnknownError.
func Read(r lab.Reader, name string) (l *lab.Lab, points []lab.Point, err error) {
	if !slices.Contains(Names(), name) {
		return nil, nil, &UnknownError{name}
	}
	dir, err := os.MkdirTemp("", "mcastlab-example-")
	if err != nil {
		return nil, nil, fmt.Errorf("read example: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, examples.Files); err != nil {
		return nil, nil, fmt.Errorf("read example: %w", err)
	}
	return r.ReadPoints(filepath.Join(dir, name+suffix))
}
