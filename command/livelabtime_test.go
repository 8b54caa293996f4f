// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// labTime demands that programs see the lab's time: a pair that measures gets what the links between them have, and not what
// this server takes. Its ends hold however busy the server is: frames are not faster than six links of 600 ns, and the iterations are
// over in the time that the client runs here. By this server's clock they would take a hundred times that.
func (l *verbsLab) labTime() {
	t := l.t
	t.Helper()
	const dilation, there = 100, 6 * 0.6 // microseconds
	at := func(node string, args ...string) []string {
		return append([]string{"exec", "--lab", l.name, "--node", node, "--"}, args...)
	}
	command := strings.Fields("ibv_rc_pingpong -g 0 -n 100 -s 64 -p " + fmt.Sprint(l.nextPort()))
	server := l.startCommand(nil, at("h0", command...)...)
	var out string
	var most float64                                 // microseconds of an iteration
	for deadline := time.Now().Add(time.Minute); ; { // until the server listens
		began := time.Now()
		r := invoke(t, nil, at("h15", append(command, "h0")...)...)
		most = float64(time.Since(began).Microseconds()) / dilation / 100
		if out = r.out + r.err; r.code == 0 {
			break
		}
		if time.Now().After(deadline) || !strings.Contains(out, "connect") {
			_ = server.Process.Kill()
			_ = server.Wait()
			t.Fatalf("exit code %d\n%s\nthe server:\n%s", r.code, out, server.said.String())
		}
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server: %v\n%s", err, server.said.String())
	}
	var us float64
	if i := strings.LastIndex(out, " = "); i < 0 {
		t.Fatal(out)
	} else if _, err := fmt.Sscanf(out[i:], " = %f usec/iter", &us); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%.2f us there and back", us)
	if us < 2*there || us > most {
		t.Errorf("there and back takes %.2f us, and not %.2f to %.2f:\n%s", us, 2*there, most, out)
	}
	if !strings.Contains(out, "of which a second takes 100 s") {
		t.Errorf("it does not say what that means:\n%s", out)
	}
	// The date is that of the deployment and what the lab's time has come to since.
	before := time.Now()
	seconds, err := strconv.ParseInt(strings.TrimSpace(must(t, at("h0", "date", "+%s")...).out), 10, 64)
	if err != nil || seconds < before.Add(-time.Hour).Unix() || seconds > before.Unix() {
		t.Errorf("the date is %d, %v; here it is %d", seconds, err, before.Unix())
	}
	for _, w := range [][]string{
		{"no clock \"moon\": use lab or wall", "--clock", "moon", "--node", "h0"}, {"--clock lab: a switch has no NIC", "--clock", "lab", "--node", "leaf0"},
	} {
		if r := invoke(t, nil, append(append([]string{"exec", "--lab", l.name}, w[1:]...), "--", "true")...); r.code == 0 || !strings.Contains(r.err, w[0]) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%q: exit code %d: %s", w[1:], r.code, r.err)
		}
	}
}
