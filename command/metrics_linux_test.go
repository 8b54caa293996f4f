// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestMetricsServer: metrics go to requests by address, localhost or a name that was given, by GET of /metrics, and to
// no other; what cannot be scraped is said.
func TestMetricsServer(t *testing.T) {
	var failed error
	s := metricsServer(func(_ context.Context, out io.Writer) error {
		_, err := io.WriteString(out, "mcastlab_node_up{node=\"h0\"} 1\n")
		return errors.Join(err, failed)
	}, []string{"lab.example"})
	ask := func(method, path, host string) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, host := range []string{"127.0.0.1:9464", "localhost:9464", "LOCALHOST", "[::1]:9464", "[::1]", "10.1.2.3", "lab.example:80", "Lab.Example"} {
		if code, text := ask("GET", "/metrics", host); code != http.StatusOK || !strings.Contains(text, "mcastlab_node_up") {
			t.Errorf("host %q: %d %q", host, code, text)
		}
	}
	for _, host := range []string{"", "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "lab.example.evil"} {
		if code, text := ask("GET", "/metrics", host); code != http.StatusForbidden || strings.Contains(text, "mcastlab_") {
			t.Errorf("host %q: %d %q", host, code, text)
		}
	}
	if code, _ := ask("POST", "/metrics", "localhost"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
	if code, _ := ask("GET", "/", "localhost"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
	failed = errors.New("lab x is not up")
	if code, text := ask("GET", "/metrics", "localhost"); code != http.StatusServiceUnavailable || text != "lab x is not up\n" {
		t.Errorf("of a lab that is gone: %d %q", code, text)
	}
}

// TestMetricsAtOnce: of many requests at once some are refused, and the others answered.
func TestMetricsAtOnce(t *testing.T) {
	begun, end := make(chan bool, metricsAtOnce), make(chan bool)
	s := httptest.NewServer(metricsServer(func(context.Context, io.Writer) error { begun <- true; <-end; return nil }, nil))
	defer s.Close()
	codes := make(chan int, metricsAtOnce)
	get := func() int {
		r, err := http.Get(s.URL + "/metrics")
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = r.Body.Close()
		return r.StatusCode
	}
	for range metricsAtOnce {
		go func() { codes <- get() }()
	}
	for range metricsAtOnce {
		<-begun
	}
	if code := get(); code != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", code)
	}
	close(end)
	for range metricsAtOnce {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("one that had room: %d", code)
		}
	}
}

// TestMetricsWrong: what cannot be served is said in a line.
func TestMetricsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"metrics", "t-no-such", "--listen", "9464"}, exitUsage, "write an address and a port"},
		{[]string{"metrics", "t-no-such", "--listen", "localhost:9464"}, exitUsage, "write an address and a port"},
		{[]string{"metrics", "t-no-such"}, exitRuntime, "lab t-no-such is not up"},
	} {
		var out, errOut strings.Builder
		code := run(t.Context(), append([]string{"mcastlab"}, c.args...), nil, &out, &errOut, hooks{})
		if code != c.code || out.String() != "" || !strings.Contains(errOut.String(), c.said) || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, out.String(), errOut.String())
		}
	}
}
