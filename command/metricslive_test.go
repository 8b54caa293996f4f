// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestMetricsLive: the counters of a running lab, in virtual time as on a wall clock, are served by HTTP while it runs,
// and again after another deployment; promtool accepts them.
func TestMetricsLive(t *testing.T) {
	need(t, "netns")
	for name, clock := range map[string]string{"t-met-step": "", "t-met-wall": "runtime: {clock: dilated, dilation: 2000}\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := write(t, "name: "+name+"\ntopology: {star: {hosts: 2}}\nworkloads: [{bcast: {schemes: [cepheus], sizes: [64KiB]}}]\n"+clock)
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", name) })
			must(t, "deploy", "-r", "netns", file)
			s := start(t.Context(), t, "metrics", name, "--listen", "127.0.0.1:0")
			url := s.line(t, "are at (http://.*/metrics)\n")[1]
			get := func(want int) string {
				t.Helper()
				r, err := http.Get(url)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(r.Body)
				if cerr := r.Body.Close(); err != nil || cerr != nil || r.StatusCode != want {
					t.Fatalf("status %d, %v, %v\n%s", r.StatusCode, err, cerr, text)
				}
				return string(text)
			}
			text := get(http.StatusOK)
			for _, want := range []string{"mcastlab_node_up{node=\"h0\"} 1\n", "mcastlab_node_up{node=\"leaf0\"} 1\n", "mcastlab_port_queue_peak_bytes{node=\"leaf0\",port=\"1\"}", "mcastlab_host_sent_total{node=\"h1\"}"} {
				if !strings.Contains(text, want) {
					t.Errorf("the text lacks %s", want)
				}
			}
			if tool, err := exec.LookPath("promtool"); err == nil {
				check := exec.Command(tool, "check", "metrics")
				check.Stdin = strings.NewReader(text)
				if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
					t.Errorf("promtool: %v\n%s", err, said)
				}
			}
			must(t, "destroy", name)
			if text := get(http.StatusServiceUnavailable); !strings.Contains(text, "is not up") {
				t.Errorf("without the lab: %s", text)
			}
			must(t, "deploy", "-r", "netns", file)
			get(http.StatusOK)
			if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != 128+int(syscall.SIGINT) {
				t.Errorf("interrupted: %v", err)
			}
		})
	}
}
