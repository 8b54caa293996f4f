// SPDX-License-Identifier: Apache-2.0

// Package watch shows labs and runs in a browser of this server.
package watch

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// policy lets a page load its own scripts and sheets, ask its own server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// NewToken returns 256 random bits as text that can stand in an address.
func NewToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Loopback parses an address to listen at, which must be one of this server's own: the page is for its users alone.
func Loopback(text string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return at, fmt.Errorf("address %q: write an address and a port, such as 127.0.0.1:0 or [::1]:8080", text)
	}
	if !at.Addr().IsLoopback() {
		return at, fmt.Errorf("address %q is not of the loopback: use 127.0.0.1 or [::1], and ssh -L to look from another server", text)
	}
	return at, nil
}

// Guard lets requests pass to shell, which has the page without data, and to data. Both are answered only if the
// request calls the server at its own port by a loopback address or localhost, so that a page of another site whose name
// is made to point here gets nothing. Data is only for requests with the header "Authorization: Bearer TOKEN": a browser
// adds it to none by itself, and it is in no address, log or Referer.
func Guard(token, port string, shell, data http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		got := sha256.Sum256([]byte(r.Header.Get("Authorization"))) // of equal length, whatever was sent
		isData := strings.HasPrefix(r.URL.Path, "/data/")
		switch {
		case !ours(r.Host, port):
			http.Error(w, "this server is not called so", http.StatusForbidden)
		case r.Method != http.MethodGet:
			h.Set("Allow", http.MethodGet)
			http.Error(w, "only GET is answered", http.StatusMethodNotAllowed)
		case !isData:
			shell.ServeHTTP(w, r)
		case subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			http.Error(w, "the token is missing or wrong: open the address that mcastlab watch has printed", http.StatusForbidden)
		default:
			data.ServeHTTP(w, r)
		}
	})
}

// ours reports whether a Host header is localhost or a loopback address, with the server's port.
func ours(host, port string) bool {
	name, p, err := net.SplitHostPort(host)
	if err != nil || p != port {
		return false
	}
	at, err := netip.ParseAddr(name)
	return err == nil && at.IsLoopback() || strings.EqualFold(name, "localhost")
}
