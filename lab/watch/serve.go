// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/mcastlab/mcastlab/internal/httpserve"
)

//go:embed page
var files embed.FS

// Bounds of the server.
const (
	writeWait  = 30 * time.Second // to take a part of an answer
	streamsMax = 8                // at a time: each asks all nodes, or reads the run
)

// Send gives the page an event and its data, as JSON. An error means that the page is closed.
type Send func(event string, data any) error

// Source sends a page its content, until ctx ends or there is no more: film (all there is, from the start),
// frame (one more of the film), faults (the film's list of faults) and note (a text).
type Source func(ctx context.Context, send Send) error

// Serve serves the page and the events of source, to clients that have the token, until ctx ends. It returns the reason
// of its end.
func Serve(ctx context.Context, l net.Listener, token string, source Source) error {
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("serve the page at %v: it is no address of TCP", l.Addr())
	}
	page, err := fs.Sub(files, "page")
	if err != nil {
		return err
	}
	h := Guard(token, strconv.Itoa(at.Port), http.FileServerFS(page), stream(source))
	if err := httpserve.Serve(ctx, l, h, writeWait); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	return ctx.Err()
}

// stream answers GET /data/stream with server-sent events. A page that does not read for writeWait is given up.
func stream(source Source) http.Handler {
	gate := make(chan struct{}, streamsMax)
	m := http.NewServeMux()
	m.HandleFunc("GET /data/stream", func(w http.ResponseWriter, r *http.Request) {
		select {
		case gate <- struct{}{}:
			defer func() { <-gate }()
		default:
			http.Error(w, "too many pages at once: close one", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		c := http.NewResponseController(w)
		send := func(event string, data any) error {
			text, err := json.Marshal(data) // of one line
			if err != nil {
				return fmt.Errorf("tell the page %s: %w", event, err)
			}
			err = errors.Join(r.Context().Err(), c.SetWriteDeadline(time.Now().Add(writeWait)))
			if err == nil {
				_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text)
			}
			return errors.Join(err, c.Flush())
		}
		if err := source(r.Context(), send); err != nil && r.Context().Err() == nil {
			_ = send("note", err.Error()) // a closed page needs none
		}
	})
	return m
}
