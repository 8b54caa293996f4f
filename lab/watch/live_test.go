// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab/report"
)

// star is a switch with hosts at 100 Gbit/s.
func star(t testing.TB, hosts int) *topo.Graph {
	t.Helper()
	g, err := topo.Star(hosts, topo.LinkParams{Rate: 100e9, Delay: vtime.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// idle returns the reports of the nodes of a graph that have been idle until an instant.
func idle(g *topo.Graph, us float64) (all []counters.Node) {
	for i := range g.Nodes {
		n := counters.Node{Node: g.Nodes[i].Name, Kind: "host", LabUS: us, Held: &counters.Held{}}
		for port := range g.Nodes[i].Links {
			n.Ports = append(n.Ports, counters.Port{Port: port})
		}
		all = append(all, n)
	}
	return all
}

// TestReel: the load is the number of bytes sent between two reports, over the lab time between them; queues and
// pauses are those of the second; a node that has ended or restarted has no load.
func TestReel(t *testing.T) {
	g := star(t, 3)
	r := newReel("x", g)
	h0, _ := g.Find("h0")
	h2, _ := g.Find("h2")
	leaf, _ := g.Find("leaf0")
	first := idle(g, 10)
	f, changed := r.next(first, nil)
	if changed || f.To != 10 || len(f.Load) > 0 {
		t.Errorf("nothing has happened, and the frame is %+v", f)
	}
	second := idle(g, 20)
	rate := g.Links[0].Rate
	second[h0].Ports[0].Sent, second[h0].Ports[0].SentBytes = 1, uint64(rate/8/1e6*5)-wire.LinkOverhead // half of 10 us
	second[leaf].Held.Queues, second[leaf].Held.Paused = []int{0, 0, 777}, []int{0, 8, 0}
	f, changed = r.next(second, []int{0})
	if !changed || f.From != 10 || f.To != 20 || len(f.Load) != 1 || f.Load[0] != [2]float64{float64(report.WayOf(g, h0, 0)), 0.5} {
		t.Errorf("the load is %v, of %v to %v", f.Load, f.From, f.To)
	}
	if !slices.Equal(f.Queue, [][2]float64{{float64(report.WayOf(g, leaf, 2)), 777}}) || !slices.Equal(f.Pause, [][2]float64{{float64(report.WayOf(g, leaf, 1)), 1}}) || !slices.Equal(f.On, []int{0}) {
		t.Errorf("queues %v, pauses %v, faults %v", f.Queue, f.Pause, f.On)
	}
	if len(f.State) != 1 || f.State[h0]["port 0: sent"] != 1 {
		t.Errorf("counters %v", f.State)
	}
	third := idle(g, 30)
	third[h2].Kind = "gone"
	f, changed = r.next(third, nil) // h0 has begun again
	if !changed || !slices.Equal(f.Gone, []int{h2}) || len(f.Load)+len(f.Queue)+len(f.Pause) > 0 || len(f.State) != 1 {
		t.Errorf("h2 has gone, and the frame is %+v", f)
	}
	fourth := idle(g, 40)
	fourth[h2].Kind = "gone"
	if _, changed = r.next(fourth, nil); changed {
		t.Error("nothing has happened since, and there is a frame")
	}
	if f, _ = r.next(idle(g, 0), nil); f.From != 0 || f.To != 0 || len(f.Load) > 0 {
		t.Errorf("another run is to come, and the frame is %+v", f)
	}
	all := idle(g, 7)
	for i := range all {
		all[i].Kind = "gone"
	}
	if f, _ = r.next(all, nil); f.From != 0 || f.To != 0 || len(f.Gone) != len(g.Nodes) {
		t.Errorf("all have gone, and the frame is %+v", f)
	}
}

// TestReelTrees: groups come and go with their paths.
func TestReelTrees(t *testing.T) {
	g := star(t, 2)
	r := newReel("x", g)
	leaf, _ := g.Find("leaf0")
	states := idle(g, 1)
	states[leaf].Groups = []counters.Group{{McstID: "10.254.0.1", Paths: []counters.Path{{Port: 0}, {Port: 1}, {Port: 9}}}}
	if f, _ := r.next(states, nil); len(f.Trees) != 1 || len(f.Trees[0].Ways) != 2 || f.Trees[0].From != 1 {
		t.Errorf("trees %+v", f.Trees)
	}
	if f, changed := r.next(states, nil); changed || f.Trees != nil {
		t.Errorf("the same tree again: %+v", f.Trees)
	}
	if f, changed := r.next(idle(g, 2), nil); !changed || f.Trees == nil || len(f.Trees) != 0 {
		t.Errorf("the group is gone: %+v", f.Trees)
	}
}

// TestLab: a lab that does not open is said to be so and tried again, its faults come before the frames in which they are
// on, and when no node answers it is opened again.
func TestLab(t *testing.T) {
	g := star(t, 2)
	opened, looks := 0, 0
	open := func() (*Up, error) {
		if opened++; opened == 1 {
			return nil, errors.New("lab x is not up")
		}
		return &Up{
			Name: "x", Graph: g, Close: func() error { return nil },
			Look: func(context.Context) []counters.Node {
				looks++
				states := idle(g, float64(looks))
				for i := range states {
					if looks == 3 {
						states[i].Kind = "gone"
					}
				}
				return states
			},
			Faults: func(context.Context) (all []report.FilmFault, on []bool) {
				if looks >= 2 {
					all, on = []report.FilmFault{{ID: "pause-1"}}, []bool{true}
				}
				return all, on
			},
		}, nil
	}
	var told []string
	ctx, stop := context.WithCancel(t.Context())
	err := Lab(open)(ctx, func(event string, data any) error {
		text, err := json.Marshal(data)
		if told = append(told, event); event == "film" && opened == 3 {
			stop()
		}
		if event == "frame" && looks == 2 && !strings.Contains(string(text), `"on":[0]`) {
			t.Errorf("the frame says %s", text)
		}
		return err
	})
	if got := strings.Join(told, " "); !errors.Is(err, context.Canceled) || got != "note film alive faults frame frame film" {
		t.Errorf("told %q, %v", got, err)
	}
}

// TestUpdates prints how many updates a second there would be of 500 nodes that are all busy, if the nodes answered
// without delay and there was no wait between two reports: all the work for a page, up to its connection.
func TestUpdates(t *testing.T) {
	const looks = 20
	g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 19, Spines: 6, Hosts: 25}, topo.LinkParams{Rate: 100e9, Delay: vtime.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	r := newReel("x", g)
	states := idle(g, 0)
	for i := range states {
		states[i].Counts = map[string]uint64{}
	}
	var frames int
	var took time.Duration
	h := stream(func(_ context.Context, send Send) error {
		before := time.Now()
		for k := range looks {
			for i := range states {
				s := &states[i]
				s.LabUS += 250
				s.Counts = map[string]uint64{"packets": uint64(k + 1), "acks": uint64(k + 1)}
				for p := range s.Ports {
					s.Ports[p].Sent += 10
					s.Ports[p].SentBytes += 10_000
				}
			}
			f, changed := r.next(slices.Clone(states), nil)
			for i := range states {
				states[i].Ports = slices.Clone(states[i].Ports)
			}
			if !changed {
				return errors.New("a frame is missing")
			}
			if err := send("frame", &f); err != nil {
				return err
			}
			frames++
		}
		took = time.Since(before)
		return nil
	})
	server := httptest.NewServer(h)
	defer server.Close()
	answer, err := http.Get(server.URL + "/data/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(answer.Body)
	if err != nil || frames != looks || strings.Count(string(text), "event: frame\n") != looks {
		t.Fatalf("%d frames, %v, %.300s", frames, err, text)
	}
	t.Logf("%d nodes: %.0f updates a second, %d KiB each", len(g.Nodes), looks/took.Seconds(), len(text)/looks>>10)
}
