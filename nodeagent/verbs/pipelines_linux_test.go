// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/test/sweeps"
)

// drawn draws pipelines of the shell. What they print does not depend on which program is faster.
type drawn struct {
	*rand.Rand
	fifos int
}

func (d *drawn) of(some ...string) string { return some[d.IntN(len(some))] }

// nap is a sleep, of up to 90 ms.
func (d *drawn) nap() string { return fmt.Sprintf("sleep .0%d", d.IntN(10)) }

// lines draws a command that writes up to 400 lines, and bulk one of up to 300,000 bytes: pipes hold
// 65,536.
func (d *drawn) lines() string {
	return d.of(fmt.Sprintf("seq %d", 1+d.IntN(400)), fmt.Sprintf("(%s; seq %d)", d.nap(), 1+d.IntN(400)), fmt.Sprintf("yes %d | head -n %d", d.IntN(100), 1+d.IntN(400)),
		fmt.Sprintf("(seq %d; %s; echo 7; %s; echo 8)", 1+d.IntN(9), d.nap(), d.nap()))
}

func (d *drawn) bulk() string {
	n := d.IntN(300_000)
	return d.of(fmt.Sprintf("head -c %d /dev/zero", n), fmt.Sprintf("(head -c %d /dev/zero; %s; head -c 70000 /dev/zero)", n, d.nap()), fmt.Sprintf("yes | head -c %d", n))
}

func (d *drawn) ofLines() string {
	return d.of("cat", "sed s/1/x/", "sort", "sort -rn", "sed -u s/2/y/", "grep -e 1 -e 7", "uniq", "rev", "tr 1 2", "awk '{ print $1 + 1 }'",
		fmt.Sprintf("head -n %d", 1+d.IntN(50)), fmt.Sprintf("tail -n %d", 1+d.IntN(50)), fmt.Sprintf("(%s; cat)", d.nap()), "tee /dev/null", "xargs -n 5 echo",
		fmt.Sprintf("head -n %d | while read x y; do echo $x; done", 1+d.IntN(20)), fmt.Sprintf("head -n 3 | while read x y; do %s; echo $x; done", d.nap()), "{ read x; echo $x; cat; }")
}

func (d *drawn) ofBulk() string {
	return d.of("cat", "tr '\\0' y", fmt.Sprintf("(%s; cat)", d.nap()), fmt.Sprintf("head -c %d", d.IntN(300_000)), fmt.Sprintf("tail -c %d", d.IntN(300_000)), "tee /dev/null", "dd bs=1000 status=none")
}

// pipeline draws a pipeline that writes lines in the end.
func (d *drawn) pipeline() string {
	s := d.lines()
	if d.IntN(3) == 0 {
		s = d.bulk()
		for range d.IntN(3) {
			s += " | " + d.ofBulk()
		}
		s += " | wc -c"
	}
	for range d.IntN(4) {
		s += " | " + d.ofLines()
	}
	return s
}

// script is a few pipelines, of which some meet at FIFOs.
func (d *drawn) script() (s string) {
	for range 1 + d.IntN(2) {
		switch d.IntN(3) {
		case 0:
			s += d.pipeline() + "\n"
		case 1:
			d.fifos++
			s += fmt.Sprintf("mkfifo p%[1]d\n{ %[2]s; } > p%[1]d &\n%[3]s < p%[1]d\nwait\n", d.fifos, d.pipeline(), d.ofLines())
		default:
			d.fifos += 2
			s += fmt.Sprintf("mkfifo p%[1]d p%[2]d\n{ %[3]s; } > p%[1]d &\n{ %[4]s; %[5]s; } > p%[2]d &\npaste p%[1]d p%[2]d | %[6]s\nwait\n", d.fifos-1, d.fifos, d.pipeline(), d.nap(), d.pipeline(), d.ofLines())
		}
	}
	return s
}

// near reports whether two runs took the same lab time. A program that computes for some milliseconds may be taken for one that looks at its
// memory, which takes 10 us.
func near(a, b vtime.Time) bool {
	return a.Sub(b) < vtime.Millisecond && b.Sub(a) < vtime.Millisecond
}

// TestRandomPipelines: pipelines that are drawn by seed end in virtual time, have the same output as on the server's clock, and take the
// same lab time in each run. MCASTLAB_PIPELINES=FIRST-LAST takes other seeds than the day's.
func TestRandomPipelines(t *testing.T) {
	lib := library(t)
	tools(t, "setarch", "awk", "rev")
	first, last := 1, 4
	if s := os.Getenv("MCASTLAB_PIPELINES"); s != "" {
		if _, err := fmt.Sscanf(s, "%d-%d", &first, &last); err != nil {
			t.Fatalf("MCASTLAB_PIPELINES=%s is not FIRST-LAST: %v", s, err)
		}
	} else if !sweeps.Whole() {
		first += 15 * int(sweeps.Day(t)%40)
		last = first + 14
	}
	for seed := first; seed <= last; seed++ {
		d := &drawn{Rand: rand.New(rand.NewPCG(uint64(seed), 39))}
		script := d.script()
		in := func() string { return "cd " + t.TempDir() + "\n" + script }
		want, err := exec.Command("sh", "-c", in()).CombinedOutput()
		if err != nil {
			t.Fatalf("seed %d: on the server's time: %v\n%s\n%s", seed, err, script, want)
		}
		var before vtime.Time
		for run := range 2 {
			h := newVirtual(t)
			out, err := h.run(lib, "sh", "-c", in())
			now := h.now
			h.close()
			if err != nil || string(out) != string(want) {
				t.Fatalf("seed %d: %v\n%s\nit says %q, and not %q", seed, err, script, trimmed(out), trimmed(want))
			}
			if run > 0 && !near(now, before) {
				t.Errorf("seed %d: it ends at %v, and in the run before at %v\n%s", seed, now, before, script)
			}
			before = now
		}
	}
	t.Logf("seeds %d to %d", first, last)
}

// trimmed returns the beginning and the end of a text.
func trimmed(b []byte) string {
	if len(b) < 400 {
		return string(b)
	}
	return strings.Join([]string{string(b[:200]), string(b[len(b)-200:])}, " ... ")
}
