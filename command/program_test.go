// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank"
)

const ringSum = "../examples/ring-sum/lab.mcl.yml"

// buildRingSum builds the example as a user would who wants to run it in containers.
func buildRingSum(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ring-sum")
	if out, err := goBuild(path, "../examples/ring-sum").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// ringSumReport reads the report of a run of the example and checks what does not depend
// on the clock.
func ringSumReport(t *testing.T, out []byte) *runner.Report {
	t.Helper()
	var r runner.Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(r.Results) != 2 || len(r.Texts) != 1 {
		t.Fatalf("%d rows, %d texts, want the program and its measurement, and one text\n%s", len(r.Results), len(r.Texts), out)
	}
	whole, sum := r.Results[0], r.Results[1]
	if whole.Scheme != "ring-sum" || whole.Ranks != 8 || whole.Verified == nil || !*whole.Verified || whole.Details != nil {
		t.Errorf("the program: %+v", whole)
	}
	if sum.Scheme != "sum" || sum.SizeBytes != 8 || sum.Ranks != 8 || sum.Iterations != 1 || !(sum.JCT.P50 > 0 && sum.JCT.P50 <= whole.JCT.P50) {
		t.Errorf("its measurement: %+v", sum)
	}
	if n := strings.Count(r.Texts[0], ": the sum of 0 to 7 is 28\n"); n != 8 {
		t.Errorf("%d of 8 ranks print the sum:\n%s", n, r.Texts[0])
	}
	return &r
}

// TestRingSum runs the example as a user does, its binary being mcastlab with one program
// more, and in a simulation that verifies all invariants.
func TestRingSum(t *testing.T) {
	bin := buildRingSum(t)
	out, err := exec.Command(bin, "run", "-q", "--check", "--format", "json", "--runs", t.TempDir(), ringSum).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := ringSumReport(t, out)
	if len(r.Expect) != 1 || !r.Expect[0].OK {
		t.Errorf("it expects %+v", r.Expect)
	}
	if out, err := exec.Command(bin, "run", "-q", "--runs", t.TempDir(), quickstart).CombinedOutput(); err != nil || !strings.Contains(string(out), "Every byte was right") {
		t.Errorf("the quickstart with a program's binary: %v\n%s", err, out)
	}
}

// testPrograms are those of the tests below.
func testPrograms() []rank.Program {
	return []rank.Program{
		{Name: "echo", Run: func(r *rank.Rank, args []string) error {
			r.Printf("%q", args)
			return nil
		}},
		{Name: "wrong", Run: func(r *rank.Rank, _ []string) error {
			r.Verify(r.ID() != 2, "rank %d has it wrong", r.ID())
			r.Verify(true, "right")
			return nil
		}},
		{Name: "fails", Run: func(r *rank.Rank, _ []string) error {
			if r.ID() == 1 {
				return errors.New("out of luck")
			}
			r.Get("a value that nobody gives")
			return nil
		}},
		{Name: "measures", Run: func(r *rank.Rank, _ []string) error {
			for i := range 3 {
				if r.ID() == 3 {
					break // it has no part
				}
				r.Sync()
				from := r.Now()
				r.Report("a nap")
				r.Sleep(vtime.Duration(1+r.ID()+i) * vtime.Microsecond)
				r.Measured("nap", 1024, from)
				if r.ID() == 0 && i == 2 {
					r.Measured("once", 0, from)
				}
			}
			return nil
		}},
	}
}

// TestPrograms: what a program prints, checks, measures and returns comes out, and each
// mistake is one line with the right exit code.
func TestPrograms(t *testing.T) {
	lab := func(program string) string {
		return "name: small\ntopology: {star: {hosts: 4}}\nworkloads: [{program: " + program + "}]\n"
	}
	for _, c := range []struct {
		name, program string
		code          int
		out, err      string
	}{
		{"arguments", `{name: echo, args: [3, "", "a b", yes]}`, 0, `h1: ["3" "" "a b" "yes"]` + "\n", ""},
		{"some ranks", `{name: echo, label: two, ranks: [h2, h3]}`, 0, "h2: []\nh3: []\n", ""},
		{"wrong", "{name: wrong}", 1, "WRONG", "mcastlab: wrong wrong, h2: rank 2 has it wrong\n"},
		{"an error", "{name: fails}", 4, "", "program fails on h1: out of luck"},
		{"misspelt", "{name: ecko}", 3, "", `:3:30: there is no program "ecko" in this binary, did you mean "echo"?`},
		{"no name", "{args: [1]}", 3, "", `workloads[0].program needs "name"`},
		{"one rank", "{name: echo, ranks: h1}", 3, "", "a program needs at least two ranks"},
		{"bad label", "{name: echo, label: a b}", 3, "", `"a b" cannot be a label`},
	} {
		o := call(t, hooks{programs: testPrograms()}, lab(c.program), "run", "-q", "--runs", t.TempDir(), "-")
		if o.code != c.code || !strings.Contains(o.out, c.out) || !strings.Contains(o.err, c.err) {
			t.Errorf("%s: exit %d, want %d with %q and %q\n%s%s", c.name, o.code, c.code, c.out, c.err, o.out, o.err)
		}
	}
	if o := call(t, hooks{}, lab("{name: echo}"), "validate", "-"); o.code != 3 || !strings.Contains(o.err, `there is no program "echo" in this binary, which has none: run the lab with a binary of your own`) {
		t.Errorf("a binary without programs: exit %d, %s", o.code, o.err)
	}
	if o := call(t, hooks{}, lab("{name: echo}"), "graph", "-"); o.code != 0 {
		t.Errorf("a drawing needs no program: exit %d, %s", o.code, o.err)
	}
	bad := func(p ...rank.Program) outcome { return call(t, hooks{programs: p}, "", "version") }
	run := func(*rank.Rank, []string) error { return nil }
	for want, o := range map[string]outcome{
		`program "a b" cannot have that name`:             bad(rank.Program{Name: "a b", Run: run}),
		"program a has no function Run, and no Broadcast": bad(rank.Program{Name: "a"}),
		"two programs are called a":                       bad(rank.Program{Name: "a", Run: run}, rank.Program{Name: "a", Run: run}),
	} {
		if o.code != 4 || !strings.Contains(o.err, want) {
			t.Errorf("exit %d, %s, want %s", o.code, o.err, want)
		}
	}
}

// sender is a broadcast in which the root sends to each rank, and what tests change of it.
type sender struct {
	r     *rank.Rank
	wrong bool // the last byte is left out
	conns []*rank.Conn
	recv  *rank.Request
	buf   *rank.Buffer
	n     int
}

func (s *sender) Begin(b *rank.Buffer, n, root int) (err error) {
	s.buf, s.n, s.conns, s.recv = b, n, nil, nil
	if s.r.ID() != root {
		c, err := s.r.Connect(root)
		if err != nil {
			return err
		}
		s.recv, err = c.Recv(b, 0, n)
		return err
	}
	for i := range s.r.Size() {
		if i == root {
			continue
		}
		c, err := s.r.Connect(i)
		if err != nil {
			return err
		}
		s.conns = append(s.conns, c)
	}
	return nil
}

func (s *sender) Run(received func()) error {
	if s.recv != nil {
		return s.r.Wait(s.recv)
	}
	n := s.n
	if s.wrong {
		n--
	}
	for _, c := range s.conns {
		q, err := c.Send(s.buf, 0, n)
		if err != nil {
			return err
		}
		if err := s.r.Wait(q); err != nil {
			return err
		}
	}
	received()
	return nil
}

func (*sender) Close() error { return nil }

// TestOwnSchemes: a program of the user's own is a scheme among the others: its bytes are
// verified, expect can name it, and each mistake is one line with the right exit code.
func TestOwnSchemes(t *testing.T) {
	with := func(wrong bool) func(*rank.Rank) (rank.Broadcast, error) {
		return func(r *rank.Rank) (rank.Broadcast, error) { return &sender{r: r, wrong: wrong}, nil }
	}
	h := hooks{programs: append(testPrograms(),
		rank.Program{Name: "right", Broadcast: with(false)}, rank.Program{Name: "short", Broadcast: with(true)},
		rank.Program{Name: "none", Broadcast: func(*rank.Rank) (rank.Broadcast, error) { return nil, nil }},
		rank.Program{Name: "panics", Broadcast: func(*rank.Rank) (rank.Broadcast, error) { panic("of my own") }})}
	for _, c := range []struct {
		schemes, more string
		code          int
		out, err      string
	}{
		{"[unicast, program:right]", "expect: [bcast.right.4KiB.jct.p50 > bcast.unicast.4KiB.jct.p50]\n", 0, "right  4KiB", ""},
		{"[{name: program:right, label: mine}]", "expect: [bcast.mine.4KiB.jct.max < 100]\n", 0, "mine  4KiB", ""},
		{"[program:short]", "", 1, "WRONG", "a receiver got wrong bytes"},
		{"[program:none]", "", 4, "", "prepare program none on h0: it returned no broadcast"},
		{"[program:panics]", "", 4, "", "panicked: of my own (at program_test.go:"},
		{"[program:echo]", "", 3, "", `there is no broadcast program "echo" in this binary: it has right, short, none or panics`},
		{"[{name: program:right, slices: 2}]", "", 3, "", "scheme program:right is a program of your own and has no parameters"},
		{"[program:right, program:right]", "", 3, "", `two schemes are called "right"`},
	} {
		text := "name: own\ntopology: {star: {hosts: 4}}\nworkloads: [{bcast: {schemes: " + c.schemes + ", sizes: [4KiB]}}]\n" + c.more
		o := call(t, h, text, "run", "-q", "--check", "--runs", t.TempDir(), "-")
		if o.code != c.code || !strings.Contains(o.out, c.out) || !strings.Contains(o.err, c.err) {
			t.Errorf("%s: exit %d, want %d with %q and %q\n%s%s", c.schemes, o.code, c.code, c.out, c.err, o.out, o.err)
		}
	}
	text := "name: own\ntopology: {star: {hosts: 4}}\nworkloads: [{program: {name: right}}]\n"
	if o := call(t, h, text, "validate", "-"); o.code != 3 || !strings.Contains(o.err, `there is no program "right"`) {
		t.Errorf("a broadcast as a workload: exit %d, %s", o.code, o.err)
	}
}

// TestProgramMeasures: the n-th time of a name is from the first rank's start to the last
// one's end; ranks that measured nothing have no part. The three barriers are outside of all times but
// the program's own, to which each adds twice the delay of the channel.
func TestProgramMeasures(t *testing.T) {
	text := "name: small\ntopology: {star: {hosts: 4}}\nworkloads: [{program: {name: measures, ranks: [h0, h1, h2]}}]\nexpect: [measures.nap.1KiB.jct.max == 5]\n"
	o := call(t, hooks{programs: testPrograms()}, text, "run", "-q", "--format", "json", "--runs", t.TempDir(), "-")
	var r runner.Report
	if err := json.Unmarshal([]byte(o.out), &r); err != nil || o.code != 0 {
		t.Fatalf("exit %d, %v, %s", o.code, err, o.err)
	}
	if len(r.Results) != 3 {
		t.Fatalf("%d rows", len(r.Results))
	}
	for i, want := range []struct {
		scheme     string
		ranks      int
		iterations int
		min, max   float64
	}{{"measures", 3, 1, 18, 18}, {"nap", 3, 3, 3, 5}, {"once", 1, 1, 3, 3}} {
		x := r.Results[i]
		if x.Scheme != want.scheme || x.Ranks != want.ranks || x.Iterations != want.iterations || x.JCT.Min != want.min || x.JCT.Max != want.max || x.Verified != nil {
			t.Errorf("row %d: %+v, want %+v", i, x, want)
		}
	}
}
