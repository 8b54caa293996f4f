// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// pipelines are scripts, with the output and the lab time in milliseconds of each.
var pipelines = []struct {
	name, script, want string
	ms                 int
}{
	{"full pipe", "head -c 300000 /dev/zero | (sleep .2; cat) | wc -c", "300000", 200},
	{"full pipe of stdio", "seq 50000 | (sleep .2; cat) | tail -n 1", "50000", 200},
	{"sed", "(sleep 1; seq 3) | sed s/2/y/ | tr '\\n' ' '", "1 y 3 ", 1000},
	{"while read", "(sleep .3; seq 3) | while read x; do printf '%s-' $x; sleep .1; done", "1-2-3-", 600},
	{"sort", "(sleep .1; echo b; sleep .1; echo a) | sort | tr '\\n' ' '", "a b ", 200},
	{"fifo", "mkfifo f; (sleep .5; echo hello > f) & cat f; wait; rm f", "hello", 500},
	{"fifo of stdio", "mkfifo f; sed s/e/a/ < f & sleep .5; echo hello > f; wait; rm f", "hallo", 500},
	{"python", `(sleep .4; seq 3) | python3 -c 'import sys; print(sum(int(l) for l in sys.stdin))'`, "6", 400},
	{"python popen", `python3 -c 'import os; print(os.popen("sleep .4; echo hi").read().strip())'`, "hi", 400},
	{"python subprocess", `python3 -c 'import subprocess; print(subprocess.run(["sh", "-c", "sleep .4; seq 30000 | tail -n 1"], capture_output=True, text=True).stdout.strip())'`, "30000", 400},
	{"awk", `(sleep .2; seq 4) | awk '{ s += $1 } END { print s }'`, "10", 200},
	{"awake", "(sleep .1; seq 3000) | sort -r | (tail -n 1; date +%3N) & for i in $(seq 50); do sleep .01; done; wait", "1\n100", 500},
	{"line of stdio", "$STDIO 500 | (read x; date +%3N; cat)", "000", 500},
	{"popen", "$STDIO r 'sleep .4; echo hi; exit 3'", "hi\n300", 400},
	{"popen to", "$STDIO w 'sleep .4; tail -n 1'", "39999\n0", 400},
	{"raw pipes both ways", "mkfifo f; sed -u s/a/b/ < f | (read x; echo $x; read x; echo $x) & (sleep .1; echo a; sleep .2; echo aa) > f; wait", "b\nba", 300},
	{"tee", "(sleep .2; seq 20000) | tee f | (sleep .3; wc -l); wc -l < f; rm f", "20000\n20000", 300},
}

// TestPipelines: calls that wait for other programs in the kernel, from any code, give their turn away: pipes that are full, reads of
// stdio's, FIFOs that no process has opened yet, futexes. They take the lab time that the programs sleep.
func TestPipelines(t *testing.T) {
	lib, program := virtualProgram(t, "stdio")
	tools(t, "python3")
	for _, c := range pipelines {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			var before vtime.Time
			for run := range 2 {
				h := newVirtual(t)
				out, err := h.run(lib, "sh", "-c", "cd "+t.TempDir()+"; STDIO="+program+"; "+c.script)
				now := h.now
				h.close()
				if got := strings.TrimRight(string(out), "\n"); err != nil || got != c.want {
					t.Fatalf("%v: it says %q, and not %q", err, got, c.want)
				}
				if us := now.Microseconds(); us < float64(c.ms)*1000 || us > float64(c.ms)*1000+1000 {
					t.Errorf("it takes %v of lab time, and not %d ms", now, c.ms)
				}
				if run > 0 && !near(now, before) {
					t.Errorf("it ends at %v, and in the run before at %v", now, before)
				}
				before = now
			}
		})
	}
}

// TestSightRefused: a program may send any descriptors in place of its page and its folder of procfs. They are refused, and closed.
func TestSightRefused(t *testing.T) {
	page := func(seals int) int {
		fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err == nil && seals != 0 {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	folder := func(name string) int {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	for name, fds := range map[string][2]int{
		"a page that can shrink":  {page(0), folder("/proc/thread-self")},
		"a folder of files":       {page(unix.F_SEAL_SHRINK), folder(t.TempDir())},
		"another folder of proc":  {page(unix.F_SEAL_SHRINK), folder("/proc")},
		"a folder for a page":     {folder("/"), folder("/proc/thread-self")},
		"a page for a folder":     {page(unix.F_SEAL_SHRINK), page(unix.F_SEAL_SHRINK)},
		"no descriptors that are": {-1, -1},
	} {
		v, err := newSight(fds[0], fds[1])
		if v != nil || err == nil {
			t.Errorf("%s: %v, %v", name, v, err)
		}
		for _, fd := range fds {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
				t.Errorf("%s: descriptor %d stays open", name, fd)
			}
		}
	}
}
