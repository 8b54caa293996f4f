// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/internal/counters"
)

// NewFolder makes a folder, base/<lab>-<n>, with the next free number.
func NewFolder(base, lab string) (string, error) {
	f, err := makeFolder(base, lab)
	if err != nil {
		return "", err
	}
	return f.path, f.root.Close()
}

// lastNumber returns the highest number of the lab's runs in base, 0 if there is none.
func lastNumber(base, lab string) (last int) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return 0 // Mkdir will return the error
	}
	for _, e := range entries {
		if num, ok := strings.CutPrefix(e.Name(), lab+"-"); ok {
			if n, err := strconv.Atoi(num); err == nil {
				last = max(last, n)
			}
		}
	}
	return last
}

// WriteJSON replaces a file atomically by a value as JSON: a reader sees the old text or the new one.
// An object has a checksum, which ReadJSON verifies.
func WriteJSON(name string, v any) error {
	b, err := encode(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return WriteFile(name, b)
}

// encode returns a value as a file of JSON.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return checksum.Object(b.Bytes()), nil
}

// nodesAsLines is the number of nodes of a lab from which on counters.json has a line for each. With a line for each count that of 16,384
// hosts has 40 MB, and took as long as a broadcast there.
const nodesAsLines = 1024

// countersText returns a counters.File. All cores make parts of it.
func countersText(nodes []counters.Node) ([]byte, error) {
	const piece = 256 // nodes
	texts := make([]bytes.Buffer, (len(nodes)+piece-1)/piece)
	errs := make([]error, len(texts))
	onCores(len(texts), func(i int) {
		some := nodes[i*piece : min(len(nodes), (i+1)*piece)]
		e := json.NewEncoder(&texts[i])
		e.SetEscapeHTML(false)
		if len(nodes) < nodesAsLines {
			e.SetIndent("  ", "  ")
			errs[i] = e.Encode(some)
			return
		}
		texts[i].WriteByte('[')
		for j := range some {
			texts[i].WriteString("\n    ")
			errs[i] = errors.Join(errs[i], e.Encode(&some[j]))
			if texts[i].Truncate(texts[i].Len() - 1); j < len(some)-1 {
				texts[i].WriteByte(',')
			}
		}
		texts[i].WriteString("\n  ]\n")
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return encode(counters.File{Schema: counters.Schema, Nodes: nodes})
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"schema\": %q,\n  \"nodes\": [", counters.Schema)
	for i := range texts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(bytes.TrimSuffix(bytes.TrimPrefix(texts[i].Bytes(), []byte("[")), []byte("\n  ]\n")))
	}
	b.WriteString("\n  ]\n}\n")
	return checksum.Object(b.Bytes()), nil
}

// onCores calls f for all numbers up to n, on all cores at once.
func onCores(n int, f func(i int)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	working.Wait()
}

// WriteFile replaces a file atomically: a reader sees the old content or the whole new one.
func WriteFile(name string, b []byte) error {
	f, err := OpenFolder(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return errors.Join(f.WriteFile(filepath.Base(name), b), f.root.Close())
}
