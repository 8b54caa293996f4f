// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"
)

// silent is a standard input on which nothing comes, for longer than anything here takes.
type silent struct {
	asked chan struct{}
	ended atomic.Bool
}

func (s *silent) Read([]byte) (int, error) {
	close(s.asked)
	<-time.After(2 * time.Minute)
	s.ended.Store(true)
	return 0, io.EOF
}

// TestAnswers: every command that reads a lab answers an interrupt while what it does has no
// end: here it reads.
func TestAnswers(t *testing.T) {
	for _, args := range [][]string{{"validate", "-"}, {"graph", "-"}, {"run", "-q", "-"}, {"fuzz", "-"}, {"run", "--runtime", "netns", "-q", "-"}, {"deploy", "-"}} {
		ctx, cancel := context.WithCancel(context.Background())
		in := &silent{asked: make(chan struct{})}
		go func() {
			<-in.asked
			cancel()
		}()
		var errOut bytes.Buffer
		code := run(ctx, append([]string{"mcastlab"}, args...), in, io.Discard, &errOut, hooks{})
		if in.ended.Load() || code != exitInterrupted || errOut.String() != "mcastlab: interrupted\n" {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
		}
	}
}

// TestFuzzLabs: the command draws labs, and says what became of them.
func TestFuzzLabs(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"mcastlab", "fuzz", "--labs", "3", "--from", "7", "--out", t.TempDir()}, nil, &out, &errOut, hooks{}); code != exitOK {
		t.Errorf("exit code %d: %s%s", code, out.String(), errOut.String())
	}
	if !bytes.HasPrefix(out.Bytes(), []byte("3 labs from seed 7 on: ")) {
		t.Errorf("it printed %q", out.String())
	}
	if code := run(t.Context(), []string{"mcastlab", "fuzz", "--labs", "3", "lab.mcl.yml"}, nil, &out, &errOut, hooks{}); code != exitUsage {
		t.Errorf("with a lab the exit code is %d", code)
	}
}
