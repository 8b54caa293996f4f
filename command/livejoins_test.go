//go:build linux

package command

import (
	"context"
	"fmt"
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
