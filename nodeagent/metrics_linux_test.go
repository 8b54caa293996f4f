// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// scrape asks the node at a socket for its metrics.
func scrape(t *testing.T, socket string) (status int, text string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	r, err := (&http.Client{Transport: tr}).Get("http://node/metrics")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// configureAs makes the agent a node of a star, over sockets that lead to the test.
func configureAs(t *testing.T, a *agent, name string, ports int) (far []int) {
	t.Helper()
	var near []int
	for range ports {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		near, far = append(near, fds[0]), append(far, fds[1])
		t.Cleanup(func() { _ = unix.Close(fds[1]) }) // the agent closes the other
	}
	a.replaceSockets(near)
	m, err := live.NewMonotonic()
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Configure(context.Background(), &nodeapi.ConfigureRequest{
		Node: name, Lab: messageOfLab(t, "name: metrics\ntopology: {star: {hosts: 2}}\n"), Rate: &nodeapi.Rate{Mono: m.Now(), Dilation: 1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	return far
}

// TestMetrics: a node serves all its counters, under the names of package counters, with the values
// that inspect shows; only its user can connect; before it is configured it says so, and later it shows
// its node.
func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	l, err := listenPrivate(dir, counters.MetricsSocket)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, counters.MetricsSocket)
	if st, err := os.Stat(socket); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket's rights are %v, %v", st.Mode(), err)
	}
	a := &agent{version: "test"}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.serveMetrics(ctx, l) }()
	if status, text := scrape(t, socket); status != http.StatusInternalServerError || !strings.Contains(text, "not configured") {
		t.Errorf("before it is configured: %d, %q", status, text)
	}

	far := configureAs(t, a, "leaf0", 2)
	if _, err := unix.Write(far[1], []byte("no frame of ours, as long as it is, 60 bytes and some more...")); err != nil {
		t.Fatal(err)
	}
	var got map[string]float64
	for range 10000 { // until it is through the switch, which has nothing to do after it
		_, text := scrape(t, socket)
		if got = parse(t, text); got[`mcastlab_switch_dropped_total{node="leaf0",reason="foreign"}`] == 1 {
			break
		}
	}
	lab := `mcastlab_node_lab_seconds{node="leaf0"}` // advances
	want := map[string]float64{
		`mcastlab_switch_groups{node="leaf0"}`: 0, `mcastlab_switch_mft_bytes{node="leaf0"}`: 0, `mcastlab_node_frames_held{node="leaf0"}`: 0,
		`mcastlab_switch_joined_groups{node="leaf0"}`: 0, `mcastlab_switch_joined_ports{node="leaf0"}`: 0,
		lab: got[lab],
	}
	a.mu.Lock()
	s, err := a.node.state()
	a.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	expect(want, s)
	compare(t, got, want)
	if s.Drops["foreign"] != 1 || got[`mcastlab_port_received_bytes_total{node="leaf0",port="1"}`] < 60 || got[lab] <= 0 {
		t.Errorf("the frame does not show: %+v", s)
	}

	configureAs(t, a, "h1", 1)
	_, text := scrape(t, socket)
	got = parse(t, text)
	if _, ok := got[`mcastlab_host_mrp_sent_total{node="h1"}`]; !ok || strings.Contains(text, "leaf0") {
		t.Errorf("a host's metrics are\n%s", text)
	}

	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	a.replaceSockets(nil)
}

// expect adds the counters of a state.
func expect(want map[string]float64, s counters.Node) {
	for _, c := range counters.Names(s.Kind) {
		want[fmt.Sprintf("mcastlab_%s_%s_total{node=%q}", s.Kind, c.Name, s.Node)] = float64(s.Counts[c.Name])
	}
	for _, r := range counters.Reasons(s.Kind) {
		want[fmt.Sprintf("mcastlab_%s_dropped_total{node=%q,reason=%q}", s.Kind, s.Node, r)] = float64(s.Drops[r])
	}
	for i := range s.Ports {
		for k, v := range s.Ports[i].Counts() {
			want[fmt.Sprintf("mcastlab_port_%s_total{node=%q,port=\"%d\"}", counters.PortNames()[k].Name, s.Node, i)] = float64(v)
		}
		if s.Kind == counters.KindSwitch {
			want[fmt.Sprintf("mcastlab_port_queue_peak_bytes{node=%q,port=\"%d\"}", s.Node, i)] = float64(s.Ports[i].QueuePeak)
		}
	}
}

func compare(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s is %v, %v; want %v", k, g, ok, v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s is not a counter", k)
		}
	}
}

// parse returns the samples of a text, which must be in the format, each with its help.
func parse(t *testing.T, text string) map[string]float64 {
	t.Helper()
	var p expfmt.TextParser
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	got := map[string]float64{}
	for name, f := range families {
		if len(f.GetHelp()) == 0 {
			t.Errorf("%s has no help", name)
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			v := m.GetCounter().GetValue()
			if m.Gauge != nil {
				v = m.Gauge.GetValue()
			}
			got[name+"{"+strings.Join(labels, ",")+"}"] = v
		}
	}
	return got
}
