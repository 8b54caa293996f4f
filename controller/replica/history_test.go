package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/mcastlab/mcastlab/controller"
	"github.com/mcastlab/mcastlab/controller/client"
	"github.com/mcastlab/mcastlab/prng"
)

// ask is what a client asks, answer what it is told.
type ask struct {
	what  string // lease, free, fault, reset, read
	lower uint32
	fault string
}

type answer struct {
	unknown bool // nobody said
	refused bool
	lower   uint32
	held    []uint32
	faults  []string
}

// world is the controller as its clients may think of it: one, and never in trouble. McstIDs
// come in order since none gets out of quarantine.
type world struct {
	next   uint32
	held   string // sorted, with blanks around each
	faults string
}

func word(x any) string { return fmt.Sprintf(" %v ", x) }

// plain is the specification that histories are checked with.
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

// history notes what clients asked and were told.
type history struct {
	mu    sync.Mutex
	begin time.Time
	all   []porcupine.Operation
}

func (h *history) do(who int, q ask, f func() answer) answer {
	from := time.Since(h.begin)
	a := f()
	to := time.Since(h.begin)
	if a.unknown {
		to = 1 << 62 // it may take effect at any time from then on
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: who, Input: q, Output: a, Call: int64(from), Return: int64(to)})
	return a
}

// work asks for things at random until told to stop.
func (h *history) work(ctx context.Context, t *testing.T, who int, x *client.Client, random prng.Stream, stop <-chan struct{}) {
	var mine []uint32
	var faults []string
	for k := 0; ; k++ {
		select {
		case <-stop:
			return
		default:
		}
		q := ask{what: []string{"lease", "lease", "free", "fault", "reset", "read"}[random.IntN(6)]}
		c := controller.Command{Lab: "lab1", Run: "run-1"}
		switch {
		case q.what == "free" && len(mine) > 0:
			i := random.IntN(len(mine))
			q.lower = mine[i]
			if random.Chance(0.8) { // the others are freed twice
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

func read(ctx context.Context, x *client.Client) answer {
	s, err := x.Read(ctx)
	if err != nil {
		return answer{unknown: true}
	}
	a := answer{held: s.Lab("lab1").Held()}
	for _, f := range s.Lab("lab1").Faults {
		if f.Stage != controller.StageRemoving {
			a.faults = append(a.faults, f.ID)
		}
	}
	return a
}

// nemesis makes one thing go wrong.
func (c *cluster) nemesis(random *prng.Stream) string {
	pick := func() string { return c.ids[random.IntN(len(c.ids))] }
	leader := c.leaderNow()
	if leader == "" {
		leader = pick()
	}
	switch random.IntN(6) {
	case 0, 1:
		_ = c.all[leader].Crash()
		return leader + " crashes, which leads"
	case 2:
		id := pick()
		_ = c.all[id].Crash()
		return id + " crashes"
	case 3:
		var to []string
		for _, id := range c.ids {
			if id != leader && random.Chance(0.7) {
				to = append(to, id)
			}
		}
		c.nets[leader].Cut(to)
		return fmt.Sprintf("%s, which leads, is not heard by %v", leader, to)
	case 4:
		to := pick()
		for _, id := range c.ids {
			if id != to && random.Chance(0.7) {
				c.nets[id].Cut([]string{to})
			}
		}
		return to + " does not hear"
	default:
		c.freeze(leader, true)
		return leader + " is stopped, which leads"
	}
}

func (c *cluster) leaderNow() (id string) {
	epoch := uint64(0)
	for _, x := range c.ids {
		if e := c.all[x].Leads(); e > epoch {
			id, epoch = x, e
		}
	}
	return id
}

// TestCheckerSees: histories that must not be are found out: a lease given twice, one that is
// lost, a fault that comes back.
func TestCheckerSees(t *testing.T) {
	op := func(i int64, q ask, a answer) porcupine.Operation {
		return porcupine.Operation{Input: q, Output: a, Call: 10 * i, Return: 10*i + 5}
	}
	lease, fault := ask{what: "lease"}, ask{what: "fault", fault: "f"}
	for name, h := range map[string][]porcupine.Operation{ // each is its own check
		"twice":      {op(0, lease, answer{lower: 1}), op(1, lease, answer{lower: 1})},
		"lost":       {op(0, lease, answer{lower: 1}), op(1, ask{what: "read"}, answer{})},
		"skipped":    {op(0, lease, answer{lower: 1}), op(1, lease, answer{lower: 3})},
		"comes back": {op(0, fault, answer{}), op(1, ask{what: "reset", fault: "f"}, answer{}), op(2, ask{what: "read"}, answer{faults: []string{"f"}})},
	} {
		if porcupine.CheckOperations(plain(), h) {
			t.Errorf("%s: the checker sees nothing wrong", name)
		}
	}
	late := op(0, lease, answer{unknown: true})
	late.Return = 1 << 62
	if !porcupine.CheckOperations(plain(), []porcupine.Operation{late, op(1, ask{what: "read"}, answer{}), op(2, lease, answer{lower: 1})}) {
		t.Error("a lease of unknown outcome must have taken effect")
	}
}

// TestHistories: whatever happens to replicas and to what is between them, clients see one
// controller that loses nothing it has acknowledged and does nothing twice. Half the seeds
// let things overlap.
func TestHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take their time")
	}
	seeds, kills := 3, 4
	if os.Getenv("MCASTLAB_SOAK") != "" {
		seeds, kills = 20, 20
	}
	from := 0
	if s := os.Getenv("MCASTLAB_SEED"); s != "" {
		var err error
		if from, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
		seeds = 1
	}
	for seed := from; seed < from+seeds; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			if kills < 10 { // they mostly wait
				t.Parallel()
			}
			oneHistory(t, uint64(seed), kills)
		})
	}
}

func oneHistory(t *testing.T, seed uint64, kills int) {
	random := prng.New(seed)
	c := newCluster(t, 3+2*int(seed%2), 2)
	x := c.client(0)
	c.deploy(x)
	h := &history{begin: time.Now()}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for who := range 3 {
		y := c.client(who)
		mine := random.Derive(fmt.Sprint("client ", who))
		all.Go(func() { h.work(t.Context(), t, who, y, mine, stop) })
	}
	for range kills {
		<-time.After(time.Duration(50+random.IntN(200)) * time.Millisecond)
		t.Log(c.nemesis(&random))
		<-time.After(time.Duration(200+random.IntN(600)) * time.Millisecond)
		if seed%2 == 0 || random.Chance(0.4) {
			c.heal()
			c.leader()
		}
	}
	c.heal()
	c.leader()
	close(stop)
	all.Wait()
	c.agree(x)
	h.do(9, ask{what: "read"}, func() answer { return read(t.Context(), x) })
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
	file := fmt.Sprintf("%s/history-%d.html", os.TempDir(), seed)
	if err := porcupine.VisualizePath(plain(), info, file); err != nil {
		t.Error(err)
	}
	t.Fatalf("seed %d: the history is %s, see %s; replay: MCASTLAB_SEED=%d go test ./controller/replica -run Histories", seed, result, file, seed)
}
