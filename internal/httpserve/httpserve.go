// SPDX-License-Identifier: Apache-2.0

// Package httpserve serves HTTP GET requests such that no client can lock the others out: it bounds the time a request
// takes, accepts no body, and bounds the number of connections.
package httpserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of a server.
const (
	headWait       = 5 * time.Second  // for a request to arrive
	idleWait       = 30 * time.Second // between two requests of a connection
	headBytes      = 1 << 14
	ConnectionsMax = 128 // open at a time
)

// Serve serves until ctx ends and returns why it ended. An answer may take answerWait to write; a handler that
// streams moves that deadline itself. Requests with a body get 413 and their connection is closed: net/http would
// wait for the body in the handler's first write. When one connection more than ConnectionsMax is open, the one
// that has waited longest for a request is closed, the new one if all others have a request under way.
func Serve(ctx context.Context, l net.Listener, h http.Handler, answerWait time.Duration) error {
	open := &connections{idle: map[net.Conn]time.Time{}, busy: map[net.Conn]bool{}}
	s := &http.Server{
		Handler:     bodiless(open.answering(h)),
		ReadTimeout: headWait, WriteTimeout: answerWait, IdleTimeout: idleWait, MaxHeaderBytes: headBytes,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ConnState:   open.change,
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return ctx.Err()
}

// bodiless refuses requests with a body.
func bodiless(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close") // or the write of the answer waits for the body
			http.Error(w, "a request to this server has no body", http.StatusRequestEntityTooLarge)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// connections are the open connections of a server.
type connections struct {
	mu   sync.Mutex
	idle map[net.Conn]time.Time // waits for a request since, or for the rest of one
	busy map[net.Conn]bool      // a handler is at work
}

// answering notes that a handler is at work. http.StateActive does not do for that: it begins with a request's first
// byte.
func (c *connections) answering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			c.mu.Lock()
			if _, open := c.idle[conn]; open {
				delete(c.idle, conn)
				c.busy[conn] = true
			}
			c.mu.Unlock()
		}
		h.ServeHTTP(w, r)
	})
}

// change follows a connection's state and keeps the number of connections within ConnectionsMax.
func (c *connections) change(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		delete(c.busy, conn)
		c.idle[conn] = time.Now()
	case http.StateClosed, http.StateHijacked:
		delete(c.busy, conn)
		delete(c.idle, conn)
	}
	if len(c.idle)+len(c.busy) > ConnectionsMax {
		c.closeOldest()
	}
}

// closeOldest closes the connection that has waited longest for a request. A connection that has sent a part of a
// request's head still counts as waiting.
func (c *connections) closeOldest() {
	var oldest net.Conn
	for conn, since := range c.idle { // the order of the map does not matter: the minimum is unique enough
		if oldest == nil || since.Before(c.idle[oldest]) {
			oldest = conn
		}
	}
	if oldest != nil {
		delete(c.idle, oldest)
		_ = oldest.Close() // its own goroutine reports the end
	}
}
