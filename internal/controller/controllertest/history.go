// SPDX-License-Identifier: Apache-2.0

// Package controllertest records the answers that clients of a controller get, and checks that a
// single controller that never fails could have given them: nothing acknowledged is lost, and
// nothing takes effect twice.
package controllertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/controller/client"
)

// The lab and the run that clients ask for.
const (
	Lab = "lab1"
	Run = "run-1"
)

// ask is a client's request, and answer is the reply to it.
type ask struct {
	what  string // lease, free, fault, reset, read
	lower uint32
	fault string
}

type answer struct {
	unknown bool // the outcome is not known
	refused bool
	lower   uint32
	held    []uint32
	faults  []string
}

// world is the model: a single controller that never fails. McstIDs are leased in order, since
// none leaves quarantine during a test.
type world struct {
	next   uint32
	held   string // sorted, each between two spaces
	faults string
}

func word(x any) string { return fmt.Sprintf(" %v ", x) }

// plain returns the specification that histories are checked against.
func plain() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return world{next: 1} },
		Step: func(state, in, out any) (bool, any) { return step(state.(world), in.(ask), out.(answer)) },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v -> %+v", in, out)
		},
	}
}

func step(w world, q ask, a answer) (bool, world) {
	switch q.what {
	case "lease":
		if !a.unknown && (a.refused || a.lower != w.next) {
			return false, w
		}
		w.held += word(w.next)
		w.next++
	case "free":
		held := strings.Contains(w.held, word(q.lower))
		if !a.unknown && a.refused == held {
			return false, w
		}
		w.held = strings.Replace(w.held, word(q.lower), "", 1)
	case "fault":
		if !a.unknown && a.refused {
			return false, w
		}
		w.faults += word(q.fault)
	case "reset":
		w.faults = strings.Replace(w.faults, word(q.fault), "", 1)
	case "read":
		held, faults := "", ""
		for _, x := range a.held {
			held += word(x)
		}
		for _, x := range a.faults {
			faults += word(x)
		}
		return a.unknown || held == w.held && faults == w.faults, w
	}
	return true, w
}

// History records the requests of clients and their answers.
type History struct {
	mu    sync.Mutex
	begin time.Time
	all   []porcupine.Operation
}

// New returns an empty history.
func New() *History { return &History{begin: time.Now()} }

func (h *History) do(who int, q ask, f func() answer) answer {
	from := time.Since(h.begin)
	a := f()
	to := time.Since(h.begin)
	if a.unknown {
		to = 1 << 62 // a command of unknown outcome may take effect at any later time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: who, Input: q, Output: a, Call: int64(from), Return: int64(to)})
	return a
}

// Work is a client that leases McstIDs and adds faults at random until stop is closed.
func (h *History) Work(ctx context.Context, t testing.TB, who int, x *client.Client, random prng.Stream, stop <-chan struct{}) {
	var mine []uint32
	var faults []string
	for k := 0; ; k++ {
		select {
		case <-stop:
			return
		default:
		}
		q := ask{what: []string{"lease", "lease", "free", "fault", "reset", "read"}[random.IntN(6)]}
		c := controller.Command{Lab: Lab, Run: Run}
		switch {
		case q.what == "free" && len(mine) > 0:
			i := random.IntN(len(mine))
			q.lower = mine[i]
			if random.Chance(0.8) { // the others stay in the list, and are freed twice
				mine = slices.Delete(mine, i, i+1)
			}
			c.Kind, c.Lower = controller.KindFree, q.lower
		case q.what == "fault":
			q.fault = fmt.Sprintf("f%d-%d.", who, k)
			faults = append(faults, q.fault)
			c.Kind, c.Faults = controller.KindFaults, []controller.Fault{{ID: q.fault}}
		case q.what == "reset" && len(faults) > 0:
			q.fault, faults = faults[0], faults[1:]
			c.Kind, c.Prefix = controller.KindReset, q.fault
		case q.what == "read":
			h.do(who, q, func() answer { return read(ctx, x) })
			continue
		default:
			q.what = "lease"
			c.Kind = controller.KindLease
		}
		a := h.do(who, q, func() answer {
			r, err := x.Do(ctx, c)
			if err != nil && !errors.Is(err, client.ErrRefused) && !errors.Is(err, client.ErrUnknown) {
				t.Errorf("%+v: %v", q, err)
			}
			return answer{unknown: errors.Is(err, client.ErrUnknown), refused: errors.Is(err, client.ErrRefused), lower: r.Lower}
		})
		if q.what == "lease" && !a.unknown {
			mine = append(mine, a.lower)
		}
	}
}

// Read records a client's read.
func (h *History) Read(ctx context.Context, who int, x *client.Client) {
	h.do(who, ask{what: "read"}, func() answer { return read(ctx, x) })
}

func read(ctx context.Context, x *client.Client) answer {
	s, err := x.Read(ctx)
	if err != nil {
		return answer{unknown: true}
	}
	a := answer{held: s.Lab(Lab).Held()}
	for _, f := range s.Lab(Lab).Faults {
		if f.Stage != controller.StageRemoving {
			a.faults = append(a.faults, f.ID)
		}
	}
	return a
}

// Check fails the test if the history is not one of a single controller. replay is the command
// that repeats it.
func (h *History) Check(t testing.TB, replay string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	result, info := porcupine.CheckOperationsVerbose(plain(), h.all, 2*time.Minute)
	unknown := 0
	for _, o := range h.all {
		if o.Output.(answer).unknown {
			unknown++
		}
	}
	t.Logf("%d operations, %d of unknown outcome", len(h.all), unknown)
	if result == porcupine.Ok {
		return
	}
	f, err := os.CreateTemp("", "history-*.html")
	if err == nil {
		err = errors.Join(porcupine.Visualize(plain(), info, f), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Fatalf("the history is %s, see %s; replay: %s", result, f.Name(), replay)
}
