// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mcastlab/mcastlab/internal/checksum"
)

// LabFile is the file of a run folder that has the lab with all its defaults.
const LabFile = "lab.resolved.yml"

// ReadJSON reads a file of a run's folder. One that is not as it was written is an error; one that has no checksum is
// taken as it is (Unsealed).
func ReadJSON(name string, v any) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read run: %w", err)
	}
	if err := checksum.ReadObject(b, v); err != nil {
		return fmt.Errorf("read run: %s: %w", name, err)
	}
	return nil
}

// ReadLab reads the lab of a run's folder. It is not parsed.
func ReadLab(dir string) ([]byte, error) {
	name := filepath.Join(dir, LabFile)
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	if err := checksum.CheckComment(b); err != nil && !errors.Is(err, checksum.ErrNone) {
		return nil, fmt.Errorf("read run: %s: %w", name, err)
	}
	return b, nil
}

// Unsealed returns the files of a run's folder that are read again and have no checksum: an older version wrote them,
// or they are damaged. A run that is still running has not written all of its checksums.
func Unsealed(dir string) (names []string) {
	var m Meta
	if ReadJSON(filepath.Join(dir, "meta.json"), &m) != nil {
		return nil // its reader reports the error
	}
	for _, name := range []string{"meta.json", "summary.json", "counters.json"} {
		if b, err := tail(filepath.Join(dir, name)); err == nil && errors.Is(checksum.CheckObject(b), checksum.ErrNone) {
			names = append(names, name)
		}
	}
	if b, err := tail(filepath.Join(dir, LabFile)); err == nil && errors.Is(checksum.CheckComment(b), checksum.ErrNone) {
		names = append(names, LabFile)
	}
	if m.Status == StatusRunning {
		return names
	}
	for _, name := range []string{"events.jsonl", TraceFile, ActsFile} {
		if b, err := tail(filepath.Join(dir, name)); err == nil && !bytes.Contains(b, []byte(checksum.Key)) {
			names = append(names, name)
		}
	}
	return names
}

// tail returns the end of a file, which has its checksum.
func tail(name string) ([]byte, error) {
	const most = 100
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, fs.ErrInvalid)
	}
	from := max(0, st.Size()-most)
	return io.ReadAll(io.NewSectionReader(f, from, st.Size()-from))
}
