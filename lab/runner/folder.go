package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/mcastlab/mcastlab/internal/counters"
)

// NewFolder makes the folder of a run, base/<lab>-<n>, with the next free number. A run
// never writes into the folder of another.
func NewFolder(base, lab string) (string, error) {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", fmt.Errorf("make run folder: %w", err)
	}
	for n := lastNumber(base, lab) + 1; ; n++ {
		dir := filepath.Join(base, fmt.Sprintf("%s-%d", lab, n))
		err := os.Mkdir(dir, 0o755)
		switch {
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrExist):
			return "", fmt.Errorf("make run folder: %w", err)
		}
	}
}

// lastNumber returns the highest number of the lab's runs in base, 0 if there is none.
func lastNumber(base, lab string) (last int) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return 0 // Mkdir will say what is wrong
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

// WriteJSON puts a value into a file as a whole: whoever reads it sees the old text or
// the new one.
func WriteJSON(name string, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return WriteFile(name, b.Bytes())
}

// writeCounters writes what WriteJSON would write of a counters.File. Of a lab of 16,384 hosts that is 40 MB, and took as long as a broadcast
// there: all cores make parts of it.
func writeCounters(name string, nodes []counters.Node) error {
	const piece = 256 // nodes
	texts := make([]bytes.Buffer, (len(nodes)+piece-1)/piece)
	errs := make([]error, len(texts))
	var working sync.WaitGroup
	cores := runtime.GOMAXPROCS(0)
	for core := range cores {
		working.Go(func() {
			for i := core; i < len(texts); i += cores {
				e := json.NewEncoder(&texts[i])
				e.SetIndent("  ", "  ")
				e.SetEscapeHTML(false)
				errs[i] = e.Encode(nodes[i*piece : min(len(nodes), (i+1)*piece)])
			}
		})
	}
	working.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if len(nodes) == 0 {
		return WriteJSON(name, counters.File{Schema: counters.Schema, Nodes: nodes})
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
	return WriteFile(name, b.Bytes())
}

// WriteFile writes a file that is either what it was or whole.
func WriteFile(name string, b []byte) error {
	next := name + ".tmp"
	if err := os.WriteFile(next, b, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(next, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
