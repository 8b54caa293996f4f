// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/rank"
)

// catching returns programs whose panics end the run with an error that names the rank and the place,
// and not the process: a run's folder is completed. The stack is written to say, which may be nil.
func catching(programs []rank.Program, say func(format string, args ...any)) []rank.Program {
	out := slices.Clone(programs)
	for i, p := range programs {
		if p.Run != nil {
			out[i].Run = func(r *rank.Rank, args []string) (err error) {
				defer recovered(r, say, &err)
				return p.Run(r, args)
			}
		}
		if p.Broadcast != nil {
			out[i].Broadcast = func(r *rank.Rank) (b rank.Broadcast, err error) {
				defer recovered(r, say, &err)
				if b, err = p.Broadcast(r); b == nil {
					return nil, err
				}
				return &caught{b: b, r: r, say: say}, err
			}
		}
	}
	return out
}

// caught is a broadcast whose panics are errors.
type caught struct {
	b   rank.Broadcast
	r   *rank.Rank
	say func(format string, args ...any)
}

// Begin implements rank.Broadcast.
func (c *caught) Begin(b *rank.Buffer, n, root int) (err error) {
	defer recovered(c.r, c.say, &err)
	return c.b.Begin(b, n, root)
}

// Run implements rank.Broadcast.
func (c *caught) Run(received func()) (err error) {
	defer recovered(c.r, c.say, &err)
	return c.b.Run(received)
}

// Close implements rank.Broadcast.
func (c *caught) Close() (err error) {
	defer recovered(c.r, c.say, &err)
	return c.b.Close()
}

// recovered makes the panic of a program an error. The caller of the program defers it. A panic by
// which the event clock unwinds a rank continues. The stack is written to say, which may be nil.
func recovered(r *rank.Rank, say func(format string, args ...any), err *error) {
	what := recover()
	if what == nil {
		return
	}
	if sim.Unwinds(what) {
		panic(what) // the run is over
	}
	if say != nil {
		say("the stack of rank %d (%s):\n%s", r.ID(), r.Name(), debug.Stack())
	}
	*err = fmt.Errorf("rank %d panicked: %v (at %s)", r.ID(), what, panicked())
}

// panicked returns the file and line of the panic that the calling deferred function has recovered.
func panicked() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	inPanic := false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			inPanic = true
		case inPanic && !strings.HasPrefix(f.Function, "runtime."):
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}
