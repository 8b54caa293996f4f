// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcastlab/mcastlab/internal/checksum"
)

// TestRun: all jobs are done, whatever becomes of others; errors come in the order of the jobs; jobs done before do
// not count for the speed of the server.
func TestRun(t *testing.T) {
	jobs := make([]Job, 9)
	for i := range jobs {
		jobs[i] = Job{Name: fmt.Sprint("job ", i), Takes: 1}
	}
	for _, atATime := range []int{0, 1, 4, 20} {
		var did atomic.Int32
		var lines []string
		err := Run(t.Context(), jobs, atATime, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) },
			func(_ context.Context, i int) (Done, error) {
				did.Add(1)
				if i%4 == 3 {
					return Done{}, fmt.Errorf("error %d", i)
				}
				return Done{Again: i == 0}, nil
			})
		if err == nil || err.Error() != "error 3\nerror 7" || did.Load() != 9 || len(lines) != 7 {
			t.Errorf("%d at a time: %v, %d done, %q", atATime, err, did.Load(), lines)
		}
		if !slices.ContainsFunc(lines, func(s string) bool { return strings.HasSuffix(s, "of 9: job 0: measured before") }) {
			t.Errorf("%q", lines)
		}
	}
}

// TestEnds: when the context ends no job is begun, and the reason is returned.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why, did := errors.New("why"), 0
	err := Run(ctx, make([]Job, 5), 1, nil, func(context.Context, int) (Done, error) {
		if did++; did == 2 {
			cancel(why)
		}
		return Done{}, nil
	})
	if !errors.Is(err, why) || did > 3 { // one may have been handed over
		t.Errorf("%v, %d done", err, did)
	}
}

// TestRecall: a file that is missing, broken or about something else is as none.
func TestRecall(t *testing.T) {
	type kept struct{ Key string }
	file := filepath.Join(t.TempDir(), "kept.json")
	mine := func(k *kept) bool { return k.Key == "a" }
	if Recall(file, mine) != nil {
		t.Error("there was no file")
	}
	sealed := func(key string) string { return string(checksum.Object([]byte("{\n  \"Key\": " + key + "\n}\n"))) }
	for text, want := range map[string]bool{
		sealed(`"a"`): true, sealed(`"b"`): false, strings.Replace(sealed(`"b"`), "b", "a", 1): false, `{"Key":"a"}`: false, `{"Key":"a"`: false, "": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := Recall(file, mine); (got != nil) != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestKey: programs, labs and questions each make another key.
func TestKey(t *testing.T) {
	keys := []string{Key("p", []byte("l"), nil), Key("q", []byte("l"), nil), Key("p", []byte("m"), nil), Key("p", []byte("l"), []string{"x"})}
	if n := len(slices.Compact(slices.Sorted(slices.Values(keys)))); n != len(keys) {
		t.Errorf("%q", keys)
	}
	if f, err := Fingerprint(); err != nil || len(f) != 64 {
		t.Errorf("%q, %v", f, err)
	}
}
