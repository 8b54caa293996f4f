// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestGuard: data is for those with the token, at this host and port, by GET; headers that keep it there are on every answer.
func TestGuard(t *testing.T) {
	token := NewToken()
	if len(token) != 43 || token == NewToken() {
		t.Errorf("token %q", token)
	}
	say := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	g := Guard(token, "9000", say("shell"), say("secret"))
	const here = "127.0.0.1:9000"
	for _, c := range []struct {
		method, path, host, auth string
		code                     int
		text                     string
	}{
		{"GET", "/", here, "", 200, "shell"},
		{"GET", "/data/stream", here, "Bearer " + token, 200, "secret"},
		{"GET", "/data/stream", "localhost:9000", "Bearer " + token, 200, "secret"},
		{"GET", "/data/stream", "[::1]:9000", "Bearer " + token, 200, "secret"},
		{"GET", "/data/stream", "127.1.2.3:9000", "Bearer " + token, 200, "secret"},
		{"GET", "/data/stream", "192.0.2.1:9000", "Bearer " + token, 403, "not called so"},
		{"GET", "/data/stream", here, "", 403, "token"},
		{"GET", "/data/stream?token=" + token, here, "", 403, "token"},
		{"GET", "/data/stream", here, token, 403, "token"},
		{"GET", "/data/stream", here, "Bearer " + token[1:], 403, "token"},
		{"GET", "/data/stream", here, "Bearer " + token + "x", 403, "token"},
		{"GET", "/data/stream", "127.0.0.1:9001", "Bearer " + token, 403, "not called so"},
		{"GET", "/data/stream", "127.0.0.1", "Bearer " + token, 403, "not called so"},
		{"GET", "/data/stream", "evil.example:9000", "Bearer " + token, 403, "not called so"},
		{"GET", "/", "127.0.0.1.evil.example:9000", "", 403, "not called so"},
		{"GET", "/", "", "", 403, "not called so"},
		{"POST", "/data/stream", here, "Bearer " + token, 405, "only GET"},
		{"OPTIONS", "/", here, "", 405, "only GET"},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Host = c.host
		if c.auth != "" {
			r.Header.Set("Authorization", c.auth)
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		text := w.Body.String()
		if w.Code != c.code || !strings.Contains(text, c.text) || strings.Contains(text, token) || c.code != 200 && strings.Contains(text, "secret") {
			t.Errorf("%+v: %d %q", c, w.Code, text)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%+v: %s is %q", c, name, got)
			}
		}
	}
}

// TestLoopback: only addresses of the loopback are taken.
func TestLoopback(t *testing.T) {
	for _, ok := range []string{"127.0.0.1:0", "[::1]:8080", "127.1.2.3:1"} {
		if _, err := Loopback(ok); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "9464", "localhost:0", "0.0.0.0:0", "[::]:0", "192.0.2.1:80", "[fe80::1%eth0]:1", ":0"} {
		if at, err := Loopback(bad); err == nil {
			t.Errorf("%q is taken as %v", bad, at)
		}
	}
}
