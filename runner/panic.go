package runner

import (
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/sim"
)

// catching returns programs whose panics end the run with an error that names the rank and the
// place, and not the process: a run's folder is completed. The stack goes to say, which may be nil.
func catching(programs []rank.Program, say func(format string, args ...any)) []rank.Program {
	out := slices.Clone(programs)
	for i, p := range programs {
		out[i].Run = func(r *rank.Rank, args []string) (err error) {
			defer func() {
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
				err = fmt.Errorf("rank %d panicked: %v (at %s)", r.ID(), what, panicked())
			}()
			return p.Run(r, args)
		}
	}
	return out
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
