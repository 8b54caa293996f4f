// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/rank"
)

// cProgram builds a program against Debian's headers.
func cProgram(t *testing.T, source string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	if out, err := exec.Command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, source, "-lrdmacm", "-libverbs", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestLiveThreads: programs whose threads wait for each other end in virtual time: servers with a thread for each of twenty connections, one
// after the other and all at once, cmtime, and random threads at two hosts, which say the same in each run.
func TestLiveThreads(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "rping", "cmtime", "timeout")
	twenty, threads := cProgram(t, "testdata/twenty.c"), cProgram(t, "../nodeagent/verbs/testdata/threads.c")
	endless := cProgram(t, "../nodeagent/verbs/testdata/endless.c")
	clients := strings.TrimSpace(strings.Repeat("x ", 20))
	text := "name: t-threads\ntopology: {star: {hosts: 2}}\nruntime: {clock: lockstep, management: true}\nworkloads:\n"
	for _, w := range []struct{ label, server, client string }{
		{"rping", "timeout 30 rping -s -P -a h0; [ $? = 124 ]", "for i in " + clients + "; do rping -c -a h0 -C 3 || exit 3; done"},
		{"twenty", "exec " + twenty + " server 20", "for i in " + clients + "; do " + twenty + " client h0 & done; wait"},
		{"cmtime", "timeout 10 cmtime -c 50; [ $? = 124 ]", "exec cmtime -s h0 -c 50"},
		{"endless", "exec " + endless + " pipes", "exec " + endless + " condition"},
		{"random1", "exec " + threads + " 1", "exec " + threads + " 2"},
		{"random2", "exec " + threads + " 1", "exec " + threads + " 2"},
	} {
		text += fmt.Sprintf("  - command: {label: %s, run: [sh, -c, 'if [ $MCASTLAB_RANK = 0 ]; then %s; exit; fi; sleep 1; %s'], ranks: [h0, h1], timeout: 300s}\n", w.label, w.server, w.client)
	}
	text = strings.ReplaceAll(text, "exec "+threads, "exec setarch -R "+threads)
	r := runTurns(t, write(t, text))
	for _, row := range r.Results {
		if row.Verified == nil || !*row.Verified {
			t.Errorf("%s has not ended well", row.Workload)
		}
	}
	for _, c := range []struct {
		label string
		rank  int
		text  string
		times int
	}{{"twenty", 0, "20 connections", 1}, {"twenty", 1, "ok\n", 20}, {"cmtime", 1, "connect", 2}, {"endless", 0, "done at", 1}, {"endless", 1, "done at", 1}, {"random1", 0, "done at", 1}, {"random1", 1, "done at", 1}} {
		if out := saidBy(t, r, c.label, c.rank); strings.Count(out, c.text) < c.times {
			t.Errorf("rank %d of %s says %q less than %d times:\n%s", c.rank, c.label, c.text, c.times, out)
		}
	}
	noLab(t, "t-threads", nil)
}

// TestLiveDepths: the bandwidth that perftest measures does not depend on how much it posts before it polls: depth, queue pairs and
// lists of posts, those that broke once and six of the day. DEPTHS=DAY draws another day's.
func TestLiveDepths(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "ib_write_bw")
	if !trapsCounter(t) {
		t.Skip("perftest goes by the processor's counter")
	}
	rows := []struct {
		size, writes int // in all; perftest counts too many completions where those of a queue pair are no multiple of 100
		args         string
	}{
		{4096, 4800, "-n 4800"},
		{4096, 4800, "-n 4800 -t 1100"},
		{4096, 4800, "-n 4800 -t 2048"},
		{4096, 4800, "-n 4800 -t 1024 -l 64"},
		{4096, 4800, "-n 300 -q 16"},
		{4096, 4800, "-n 300 -q 16 -t 60 -l 20"},
		{4096, 4800, "-n 600 -q 8 -t 2048"},
		{65536, 1280, "-n 5 -q 256"},
		{65536, 1280, "-n 5 -q 256 -R"},
	}
	day := uint64(time.Now().Unix() / 86400)
	if _, err := fmt.Sscan(os.Getenv("DEPTHS"), &day); err != nil && os.Getenv("DEPTHS") != "" {
		t.Fatal(err)
	}
	t.Logf("drawn rows: DEPTHS=%d", day)
	draw := rand.New(rand.NewPCG(day, 0))
	for range 6 {
		size := 4096 << (2 * draw.IntN(2))
		qps, list := 1<<draw.IntN(7), []int{1, 4, 10, 20, 50}[draw.IntN(5)]
		// A queue that is shorter than perftest's 100 writes a completion has other completions; one of a whole path's writes
		// never runs dry.
		depth := list * (100/list + draw.IntN(1024/list))
		writes := 100 * (1 + draw.IntN(max(1, 48/qps)))
		rows = append(rows, struct {
			size, writes int
			args         string
		}{size, qps * writes, fmt.Sprintf("-n %d -q %d -t %d -l %d", writes, qps, depth, list)})
	}
	text := fmt.Sprintf(hops, "t-depths")
	for i, c := range rows {
		text += fmt.Sprintf(pairOf, fmt.Sprint("bw", i), fmt.Sprintf("ib_write_bw -F -s %d %s", c.size, c.args), "h1")
	}
	r := runTurns(t, write(t, text))
	for i, c := range rows {
		want := simulated(t, text, 1, c.size, func(r *rank.Rank, size int) (float64, error) { return bandwidth(r, size, c.writes) })
		near(t, fmt.Sprintf("ib_write_bw -s %d %s", c.size, c.args), column(t, r, fmt.Sprint("bw", i), 3)*(1<<20)*8/1e9, want, 0.3)
	}
	noLab(t, "t-depths", nil)
}
