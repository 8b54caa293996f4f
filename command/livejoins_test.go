// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// joinedLab is a lab in virtual time, whose programs are members of groups at hosts of all pods of a fat-tree, and send from one of
// these and from a host without a member.
const joinedLab = `name: t-joins-lockstep
topology: {fat-tree: {k: 4}}
runtime: {clock: lockstep, management: true}
workloads:
  - command: {label: mckey, timeout: 300s, run: [sh, -c, 'if [ $MCASTLAB_RANK = 0 ]; then sleep 1; exec mckey -m 239.1.2.3 -s -C 10; fi; exec mckey -m 239.1.2.3 -C 10'], ranks: [h3, h1, h6, h15]}
  - command: {label: bw, timeout: 300s, run: [sh, -c, 'M="-g -M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3"; if [ $MCASTLAB_RANK = 0 ]; then exec ib_send_bw -F -c UD -n 100 $M; fi; sleep 1; exec ib_send_bw -F -c UD -n 100 $M h0'], ranks: [h0, h9]}
`

// killedLab is a lab in virtual time in which members die at 2 s: one of two at h1, and the only one at h6. At 3 s the other
// members get what is sent. (Those poll, which makes lab time slow.)
const killedLab = `name: t-joins-killed
topology: {fat-tree: {k: 4}}
runtime: {clock: lockstep, management: true}
workloads:
  - command: {label: mckey, timeout: 300s, ranks: [h3, h1, h6, h15], run: [sh, -c, 'G="-m 239.1.2.3";
      case $MCASTLAB_RANK in
      0) sleep 3; exec mckey $G -s -C 10;;
      1) mckey $G -C 10 & timeout -s KILL 2 mckey $G -C 1000; wait $!;;
      2) timeout -s KILL 2 mckey $G -C 1000; sleep 2;;
      3) exec mckey $G -C 10;;
      esac']}
`

// TestLiveJoinsKilled: programs that are killed are out of the groups of their host, in virtual time: its other programs stay members,
// and a host without any gets no datagram. In the end no table has a group.
func TestLiveJoinsKilled(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "mckey")
	dir := t.TempDir()
	r := invoke(t, nil, "run", "-q", "-r", "netns", "--allow-programs", "--format", "json", "--runs", dir, write(t, killedLab))
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "counters.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{`"joined"`, `"no-group"`, `"unknown-group"`} {
		if bytes.Contains(b, []byte(what)) {
			t.Errorf("%s has %s", files[0], what)
		}
	}
}

// TestLiveJoins: datagrams of programs reach the members of a multicast group across the switches of a fat-tree, in virtual time and
// on the wall clock, and no table keeps a group that all have left.
func TestLiveJoins(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "mckey", "ib_send_bw")
	t.Run("lockstep", func(t *testing.T) {
		r := invoke(t, nil, "run", "-q", "-r", "netns", "--allow-programs", "--format", "json", "--runs", t.TempDir(), write(t, joinedLab))
		if r.code != 0 {
			t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
		}
	})
	t.Run("dilated", func(t *testing.T) {
		l := &verbsLab{t: t, name: "t-joins"}
		file := write(t, "name: t-joins\ntopology: {star: {hosts: 3}}\nlinks: {ip: 6}\nruntime: {clock: dilated, dilation: 100, management: true}\n")
		t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", l.name) })
		must(t, "deploy", "--runtime", "netns", file)
		joined := func(want int) {
			t.Helper()
			for deadline := time.Now().Add(5 * time.Minute); ; {
				n := 0
				for _, j := range l.node("leaf0").Joined {
					n += len(j.Ports)
				}
				if n == want {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("leaf0 has %+v, want %d ports", l.node("leaf0").Joined, want)
				}
			}
		}
		server := l.start("h0", nil, "timeout", "120", "ib_send_bw", "-F", "-c", "UD", "-g", "-n", "100")
		var last string
		for deadline := time.Now().Add(2 * time.Minute); ; { // until the server listens
			r := invoke(t, nil, l.at("h2", "timeout", "60", "ib_send_bw", "-F", "-c", "UD", "-g", "-n", "100", "h0")...)
			if r.code == 0 {
				break
			}
			if last = r.out + r.err; time.Now().After(deadline) || !strings.Contains(last, "connect") {
				_ = server.Process.Kill()
				t.Errorf("exit code %d: %s", r.code, last)
				break
			}
		}
		if err := server.Wait(); err != nil {
			t.Error(fmt.Errorf("the server: %w\n%s", err, server.said.String()))
		}
		joined(0)
	})
}
