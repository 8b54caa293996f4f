// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// serving runs a server whose handler allows one request at a time, as those of metrics and pages do.
func serving(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			select {
			case gate <- struct{}{}:
				defer func() { <-gate }()
				_, _ = io.WriteString(w, "served")
			default:
				http.Error(w, "busy", http.StatusServiceUnavailable)
			}
		}), time.Hour)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the server ended with %v", err)
		}
	})
	return l.Addr().String()
}

// ask sends text and returns the connection and the status of the answer.
func ask(t *testing.T, addr, text string) (net.Conn, int) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return c, r.StatusCode
}

const plain = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// TestBodies: a request whose body never arrives is refused at once, whatever announces the body, and holds nobody up.
func TestBodies(t *testing.T) {
	addr := serving(t)
	for _, head := range []string{"Content-Length: 1", "Content-Length: 1000", "Content-Length: 1000000000", "Transfer-Encoding: chunked"} {
		for range 4 {
			c, code := ask(t, addr, "GET / HTTP/1.1\r\nHost: x\r\n"+head+"\r\n\r\n")
			if code != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %d", head, code)
			}
			defer func() { _ = c.Close() }() // held to the end
		}
		if _, code := ask(t, addr, plain); code != http.StatusOK {
			t.Errorf("beside %s: %d", head, code)
		}
	}
	if _, code := ask(t, addr, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); code != http.StatusOK {
		t.Errorf("a body of no bytes: %d", code)
	}
}

// TestConnections: however many connections are held open, in whichever state, a new one is served.
func TestConnections(t *testing.T) {
	addr := serving(t)
	var held []net.Conn
	for i := range 3 * ConnectionsMax {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		switch i % 3 {
		case 0: // silent
		case 1:
			_, err = io.WriteString(c, "GET / HT")
		case 2: // idle after an answer
			_, err = io.WriteString(c, plain)
		}
		if err != nil && i < ConnectionsMax {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	if _, code := ask(t, addr, plain); code != http.StatusOK {
		t.Errorf("beside %d connections: %d", len(held), code)
	}
}

// TestBound: at ConnectionsMax nothing is closed, with one more the oldest idle connection is, and with no idle one none.
func TestBound(t *testing.T) {
	c := &connections{idle: map[net.Conn]time.Time{}, busy: map[net.Conn]bool{}}
	var all []*closing
	add := func() *closing {
		x := &closing{name: fmt.Sprint(len(all))}
		all = append(all, x)
		c.change(x, http.StateNew)
		return x
	}
	for range ConnectionsMax {
		add()
	}
	for i, x := range all {
		if x.closed {
			t.Fatalf("connection %d of %d is closed", i, ConnectionsMax)
		}
	}
	serve := c.answering(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	work := func(x *closing) { // the handler of x has begun
		c.change(x, http.StateActive)
		serve.ServeHTTP(nil, (&http.Request{}).WithContext(context.WithValue(t.Context(), connKey{}, net.Conn(x))))
	}
	work(all[0])
	c.change(all[1], http.StateActive) // a part of a request's head is no request
	add()
	if all[0].closed || !all[1].closed || all[2].closed {
		t.Errorf("with one more: %v %v %v", all[0].closed, all[1].closed, all[2].closed)
	}
	c.change(all[1], http.StateClosed)
	for _, x := range all[2:] {
		work(x)
	}
	if x := add(); !x.closed {
		t.Error("one more than ConnectionsMax is open beside requests under way")
	}
	for _, x := range all[2 : len(all)-1] {
		if x.closed {
			t.Fatalf("connection %s is closed amid its request", x.name)
		}
	}
}

// closing is a connection that only knows whether it is closed.
type closing struct {
	net.Conn
	name   string
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }
