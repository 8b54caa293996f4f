// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/internal/test/golden"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/traces"
	"github.com/mcastlab/mcastlab/traces/explain"
)

// simulate runs a lab and reads its trace.
func simulate(t testing.TB, text string, programs ...rank.Program) (*explain.Trace, *runner.Report) {
	t.Helper()
	l, err := lab.Reader{}.Parse("lab.mcl.yml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	rep, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir(), Env: apps.Env{Programs: programs}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return read(t, rep.RunDir), rep
}

func read(t testing.TB, dir string) *explain.Trace {
	t.Helper()
	f, err := runner.OpenTrace(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := explain.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// the explains message number id and checks that its parts sum to its time.
func the(t *testing.T, tr *explain.Trace, id int) explain.Parts {
	t.Helper()
	m := tr.Message(id)
	if m == nil {
		t.Fatalf("no message %d of %d", id, len(tr.Messages))
	}
	e, ok := tr.Explain(m)
	if !ok {
		t.Fatalf("message %d reached nobody", id)
	}
	if e.Parts.Sum() != m.JCT || m.JCT <= 0 {
		t.Errorf("message %d: the parts %v sum to %d ps, its JCT is %d ps", id, e.Parts, e.Parts.Sum(), m.JCT)
	}
	var ns int64
	for _, v := range e.Parts.Nanoseconds() {
		ns += v
	}
	if ns != (m.JCT+500)/1000 {
		t.Errorf("message %d: %d ns in all, JCT %d ps", id, ns, m.JCT)
	}
	at := m.Start
	for _, s := range e.Path {
		if s.From != at || s.To <= s.From {
			t.Errorf("message %d: the path has a hole or goes back: %+v after %d", id, s, at)
		}
		at = s.To
	}
	if at != m.Start+m.JCT {
		t.Errorf("message %d: the path ends at %d, the message at %d", id, at, m.Start+m.JCT)
	}
	return e.Parts
}

// Of a lab with the default links and switches: picoseconds.
const (
	byteTime = 80      // at 100 Gb/s
	delay    = 600_000 // of a link
	latency  = 400_000 // of a switch
	overhead = 82      // bytes on the wire beside a SEND's payload
	mtu      = 4096
)

// wireTime returns the time that a message occupies a link.
func wireTime(bytes int) int64 {
	return int64(bytes+overhead*max(1, (bytes+mtu-1)/mtu)) * byteTime
}

// lastTime returns the time of the one packet that a hop waits for: store and forward. The short last
// packet catches up with the full one before it.
func lastTime(bytes int) int64 { return int64(min(bytes, mtu)+overhead) * byteTime }

const twoLeaves = "topology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}\ntrace: messages\n"

// TestIdlePath: on a path that nothing else uses a message's time is the closed form of F-1, S(m, L) =
// wire(m)/B + (L-1)(packet/B + latency) + L delay, to the picosecond: the bytes are serialisation, the
// rest propagation; the time of software is host.
func TestIdlePath(t *testing.T) {
	for _, size := range []int{4, 64, 4096, 4100, 10_000, 65536, 1 << 20} {
		tr, _ := simulate(t, fmt.Sprintf("name: idle\n%sworkloads:\n  - bcast: {schemes: [cepheus, unicast], ranks: [h0, h3], sizes: [%dB], iterations: 1}\n", twoLeaves, size))
		for id := 1; id <= 2; id++ {
			const links = 4
			want := explain.Parts{
				explain.Serialisation: wireTime(size) + (links-1)*lastTime(size),
				explain.Propagation:   links*delay + (links-1)*latency,
			}
			if got := the(t, tr, id); got != want {
				t.Errorf("%s of %d bytes: got %v, want %v", tr.Message(id).Scheme, size, got, want)
			}
		}
	}
	tr, _ := simulate(t, "name: cost\n"+twoLeaves+"nics: {host-cost: {post: 100ns, poll: 50ns, stack: 30ns}}\n"+
		"workloads:\n  - bcast: {schemes: [unicast], ranks: [h0, h3], sizes: [64B], iterations: 1}\n")
	// The sender posts and goes through its stack; the receiver polls and goes through its own.
	if got := the(t, tr, 1); got[explain.Host] != 100_000+30_000+50_000+30_000 {
		t.Errorf("host costs of 210 ns are %d ps of host", got[explain.Host])
	}
}

// TestFaultsShow: the cost of a fault shows beside the same message without it, to the picosecond, as
// the part it is, and nothing else changes.
func TestFaultsShow(t *testing.T) {
	for _, c := range []struct {
		name, nics, fault string
		part              explain.Part
	}{
		{"a paused receiver", "", "{at: START, for: 30us, pause: {node: h3, priority: 3}}", explain.Pause},
		{"a lost packet", "", "{loss: {links: h3-leaf1, frames: {kind: data}, nth: [7]}}", explain.Retransmission},
		{"a lost last packet", "{timeout: 131us}", "{loss: {links: h3-leaf1, frames: {kind: data}, nth: [32]}}", explain.Retransmission},
		{"two lost packets", "", "{loss: {links: h3-leaf1, frames: {kind: data}, nth: [7, 25]}}", explain.Retransmission},
		{"a lost packet of IRN", "{retransmit: irn}", "{loss: {links: h3-leaf1, frames: {kind: data}, nth: [31]}}", explain.Retransmission},
		{"a stalled receiver", "", "{at: START, for: 20us, nic-stall: {nodes: h3}}", explain.Straggler},
	} {
		for _, scheme := range []string{"cepheus", "unicast"} {
			if c.nics == "" {
				c.nics = "{}"
			}
			text := "name: fault\n" + twoLeaves + "nics: " + c.nics + "\nworkloads:\n  - bcast: {schemes: [" + scheme + "], ranks: [h0, h3], sizes: [128KiB], iterations: 1}\n"
			healthy, _ := simulate(t, text)
			start := fmt.Sprintf("%dns", healthy.Message(1).Start/1000+5000)
			faulty, _ := simulate(t, text+"faults:\n  - "+strings.ReplaceAll(c.fault, "START", start)+"\n")
			want, got := the(t, healthy, 1), the(t, faulty, 1)
			cost := faulty.Message(1).JCT - healthy.Message(1).JCT
			want[c.part] += cost
			paused := 0
			e, _ := faulty.Explain(faulty.Message(1))
			for _, s := range e.Path {
				if s.By == "h3" && s.Part == "pause" && strings.HasPrefix(s.At, "leaf1:") {
					paused++
				} else if s.By != "" {
					t.Errorf("%s, %s: %+v", c.name, scheme, s)
				}
			}
			if (paused > 0) != (c.part == explain.Pause) {
				t.Errorf("%s, %s: %d steps were paused by h3", c.name, scheme, paused)
			}
			if got != want || cost <= 0 {
				t.Errorf("%s, %s: it cost %d ps; got %v, want %v", c.name, scheme, cost, got, want)
			}
		}
	}
}

// incast is a program in which all ranks send to the first at once.
func incast(size int) rank.Program {
	return rank.Program{Name: "incast", Run: func(r *rank.Rank, _ []string) error {
		buf, err := r.Alloc(size, rank.MemoryBytes)
		if err != nil {
			return err
		}
		if r.ID() > 0 {
			c, err := r.Connect(0)
			if err != nil {
				return err
			}
			r.Sync()
			q, err := c.Send(buf, 0, size)
			if err != nil {
				return err
			}
			return r.Wait(q)
		}
		var all []*rank.Request
		for i := 1; i < r.Size(); i++ {
			c, err := r.Connect(i)
			if err != nil {
				return err
			}
			q, err := c.Recv(buf, 0, size)
			if err != nil {
				return err
			}
			all = append(all, q)
		}
		r.Sync()
		return r.Wait(all...)
	}}
}

// TestIncast: of two that send to one at once each waits behind the other at the port they
// share: half of the port's time is the other's.
func TestIncast(t *testing.T) {
	const size = 256 << 10
	const text = "name: incast\ntopology: {star: {hosts: 3}}\ntrace: messages\nworkloads:\n  - program: {name: incast}\n"
	tr, _ := simulate(t, text, incast(size))
	if len(tr.Messages) != 2 {
		t.Fatalf("%d messages, want the two requests", len(tr.Messages))
	}
	for id := 1; id <= 2; id++ {
		got := the(t, tr, id)
		want := explain.Parts{
			explain.Serialisation: wireTime(size) + lastTime(size),
			explain.Queueing:      wireTime(size),
			explain.Propagation:   2*delay + latency,
		}
		// They take turns: the one that ends first waited one packet less.
		if short := want[explain.Queueing] - got[explain.Queueing]; short != 0 && short != lastTime(size) {
			t.Errorf("message %d: queueing %d ps, want %d or a packet less", id, got[explain.Queueing], want[explain.Queueing])
		}
		got[explain.Queueing] = want[explain.Queueing]
		if got != want {
			t.Errorf("message %d: got %v, want %v", id, got, want)
		}
	}
}

// TestCNPs: a story mentions congestion notifications at both their ends.
func TestCNPs(t *testing.T) {
	text := "name: marked\ntopology: {star: {hosts: 4}}\ntrace: messages\nswitches: {ecn: {enabled: true, kmin: 8KB, kmax: 32KB}}\nnics: {congestion: dcqcn}\n" +
		"workloads:\n  - program: {name: incast}\n"
	tr, _ := simulate(t, text, incast(1<<20))
	s := tr.Story(tr.Message(1))
	sent, got := 0, 0
	for _, e := range s.Events {
		switch {
		case e.What == "CNP" && strings.HasPrefix(e.Text, "sends"):
			sent++
		case e.What == "CNP":
			got++
		}
	}
	if sent == 0 || got != sent || s.Totals.CNPs != sent {
		t.Errorf("%d CNPs are sent, %d come, the total is %d", sent, got, s.Totals.CNPs)
	}
	if got := the(t, tr, 1); got[explain.Queueing] == 0 || got[explain.Unknown] != 0 {
		t.Errorf("%v", got)
	}
}

// TestRNR: a sender waits for a receiver that has posted nothing, also when more packets than one were under way before the
// RNR NAK came. What is not the wait is the time of a message whose receive was posted.
func TestRNR(t *testing.T) {
	for _, size := range []int{64, 100_000} {
		program := rank.Program{Name: "late", Run: func(r *rank.Rank, _ []string) error {
			buf, err := r.Alloc(size, rank.MemoryBytes)
			if err != nil {
				return err
			}
			c, err := r.Connect(1 - r.ID())
			if err != nil {
				return err
			}
			r.Sync()
			post := c.Send
			if r.ID() == 1 {
				r.Sleep(5_000_000)
				post = c.Recv
			}
			q, err := post(buf, 0, size)
			if err != nil {
				return err
			}
			return r.Wait(q)
		}}
		const text = "name: late\ntopology: {star: {hosts: 2}}\ntrace: messages\nnics: {rnr-timer: 40us}\nworkloads:\n  - program: {name: late}\n"
		tr, _ := simulate(t, text, program)
		got := the(t, tr, 1)
		rest := tr.Message(1).JCT - got[explain.RNR]
		// Both transmissions of a packet cross two links. Of the wait of 40.96 us packets take a part that were on their way to the port.
		if want := 2 * (2*delay + latency + 2*lastTime(64)); size == 64 && rest != want || got[explain.RNR] < 35_000_000 || rest > 20_000_000 || got[explain.Unknown] != 0 {
			t.Errorf("%d bytes: %v, %d of them no wait", size, got, rest)
		}
	}
}

// TestEveryScheme: the JCT of every message of every scheme is that of its row, nothing is
// unknown, with losses and without, and the list knows who was last.
func TestEveryScheme(t *testing.T) {
	for i, c := range []struct{ nics, faults string }{
		{"{}", ""},
		{"{retransmit: irn}", "faults: [{loss: {links: \"*-*\", rate: 0.003}}]\n"},
		{"{}", "switches: {forwarding: cut-through}\nlinks: {ip: 6, vlan: 5}\n"},
		{"{timeout: 131us, host-cost: {post: 200ns, poll: 100ns}}", "faults: [{loss: {links: \"*-*\", rate: 0.001, frames: {kind: data}}}]\n"},
		{"{window: 16, ack-every: 8}", "faults: [{at: 30us, for: 20us, pause: {node: h5, priority: 3}}, {at: 400us, for: 20us, pause: {node: h5, priority: 3}}]\n"},
	} {
		if testing.Short() && i > 1 {
			break
		}
		tr, rep := simulate(t, "name: all\ntopology: {leaf-spine: {leaves: 3, spines: 2, hosts: 3}}\ntrace: messages\nnics: "+c.nics+`
workloads:
  - bcast: {schemes: [cepheus, chain, binomial, unicast, binary-tree, double-binary-tree, long, rdmc, scatter-allgather, 2ringM], sizes: [64B, 100kB], iterations: 2}
  - allgather: {schemes: [ring, linear, recursive-doubling], ranks: h0..h7, sizes: [20kB], iterations: 1}
  - reduce-scatter: {schemes: [ring, in-network], sizes: [8KiB], iterations: 1}
  - fsdp: {schemes: [{allgather: ring, reduce-scatter: ring}, {allgather: cepheus, reduce-scatter: in-network}], sizes: [8KiB], iterations: 2}
`+c.faults)
		next := 0
		for _, row := range rep.Results {
			most := 0.0
			for range row.Iterations {
				m := tr.Messages[next]
				next++
				if m.Scheme != row.Scheme || m.Bytes != int64(row.SizeBytes) || m.Workload != row.Workload {
					t.Fatalf("message %d is of %s %s, %d bytes; the row of %s %s, %d bytes", m.ID, m.Workload, m.Scheme, m.Bytes, row.Workload, row.Scheme, row.SizeBytes)
				}
				most = max(most, float64(m.JCT)/1e6)
				if got := the(t, tr, m.ID); got[explain.Unknown] > 0 {
					t.Errorf("%s %s, %d bytes, %s: %d of %d ps are unknown", m.Workload, m.Scheme, m.Bytes, c.nics, got[explain.Unknown], m.JCT)
				}
			}
			if most != row.JCT.Max {
				t.Errorf("%s %s, %d bytes: JCT at most %g us, the row says %g", row.Workload, row.Scheme, row.SizeBytes, most, row.JCT.Max)
			}
		}
		if next != len(tr.Messages) {
			t.Errorf("%d messages, the rows have %d", len(tr.Messages), next)
		}
	}
}

// eventful is the example: a small run in which something happens.
func eventful(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/trace.mcl.yml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGolden: the text for readers.
func TestGolden(t *testing.T) {
	tr, _ := simulate(t, eventful(t))
	var b bytes.Buffer
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n----\n")
	}
	must(tr.List().WriteText(&b))
	must(tr.Story(tr.Message(1)).WriteText(&b))
	must(tr.Story(tr.Message(2)).WriteText(&b))
	must(tr.Table().WriteText(&b))
	must(tr.One(tr.Message(1)).WriteText(&b))
	golden.Compare(t, "testdata/eventful.txt", b.String())
	again, _ := simulate(t, eventful(t))
	one, err := json.Marshal(tr.Story(tr.Message(1)))
	two, err2 := json.Marshal(again.Story(again.Message(1)))
	if err != nil || err2 != nil || !bytes.Equal(one, two) {
		t.Errorf("two runs tell two stories: %v, %v", err, err2)
	}
}

// TestGap: missing parts are named.
func TestGap(t *testing.T) {
	text := `{"schema":"` + traces.TraceSchema + `"}
{"k":"host","n":"h0","t":0,"psn":0,"src":"10.0.0.1"}
{"k":"host","n":"h1","t":0,"psn":0,"src":"10.0.0.2"}
{"k":"posted","n":"h0","t":1000000,"psn":7,"dst":"10.0.0.2","dqp":17,"qp":18,"c":1,"b":64,"op":"SEND"}
{"k":"received","n":"h1","t":9000000,"src":"10.0.0.1","dst":"10.0.0.2","dqp":17,"psn":7,"b":64}
{"k":"gap","n":"leaf0","t":5000000,"psn":0,"text":"its process has ended"}
{"k":"cut","t":0,"psn":0,"c":3}
{"k":"sent","n":"h0","t":1000`
	tr, err := explain.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tr.List().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"GAP: from 5.000 us of lab time on nothing is known of leaf0 (its process has ended)\n", "GAP: 3 lines beyond the size limit were left out\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if got := the(t, tr, 1); got[explain.Unknown] != 8_000_000 {
		t.Errorf("without hops: %v", got)
	}
	for _, bad := range []string{"", "{}\n", `{"schema":"mcastlab/events/v1"}` + "\n", strings.Replace(text, `"c":1,`, `"c":,`, 1),
		strings.Replace(text, `"c":1,`, `"c":1,"p":-1,`, 1), strings.Replace(text, `"k":"cut","t":0,"psn":0,"c":3`, `"k":"sent","n":"h0","t":0,"psn":0,"c":99999999999`, 1)} {
		if _, err := explain.Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%.60q was read", bad)
		}
	}
}

// TestTruncated: part of a trace is never taken for the whole, wherever it was cut: its stories are
// marked as incomplete. The same holds for a trace that lacks lines in between.
func TestTruncated(t *testing.T) {
	_, rep := simulate(t, "name: cut\ntopology: {star: {hosts: 3}}\ntrace: messages\nworkloads:\n  - bcast: {schemes: [cepheus], sizes: [5kB], iterations: 1}\n")
	text, err := os.ReadFile(filepath.Join(rep.RunDir, runner.TraceFile))
	if err != nil {
		t.Fatal(err)
	}
	whole := func(b []byte) bool {
		tr, err := explain.Read(bytes.NewReader(b))
		if err == nil && tr.Incomplete != "" {
			var list, table bytes.Buffer
			err = errors.Join(tr.List().WriteText(&list), tr.Table().WriteText(&table))
			if err != nil || !strings.HasPrefix(list.String(), "GAP: the trace has no end") || !strings.HasPrefix(table.String(), "GAP: the trace has no end") {
				t.Errorf("of %d bytes: %v\n%s%s", len(b), err, &list, &table)
			}
			return false
		}
		return err == nil
	}
	for n := range len(text) - 1 { // without its last newline nothing is missing
		if whole(text[:n]) {
			t.Errorf("%d of %d bytes are taken for all", n, len(text))
		}
	}
	if !whole(text) {
		t.Errorf("a trace of %d bytes is not taken for one", len(text))
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i := range lines[:len(lines)-1] { // the part after the last newline is empty
		if whole(bytes.Join(slices.Concat(lines[:i], lines[i+1:]), nil)) {
			t.Errorf("without line %d of %d the trace is taken for all of it", i+1, len(lines)-1)
		}
	}
	for _, more := range []string{"{", string(lines[1]), "{}\n"} {
		if whole(append(bytes.Clone(text), more...)) {
			t.Errorf("with %q after its end the trace is taken for what was written", more)
		}
	}
}
