// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcastlab/mcastlab/internal/shareapi"
)

// TestServiceOfShare: a deployer calls the service and opens streams at the same socket; errors come back as they are, and are logged.
func TestServiceOfShare(t *testing.T) {
	x := sharesOf(t)[1]
	var mu sync.Mutex
	var logged []string
	x.log = func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, fmt.Sprintf(format, args...))
	}
	x.part = nil
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l, err := x.listenHere(ctx, shareapi.Socket)
	if err != nil {
		t.Fatal(err)
	}
	x.callers = x.serveCalls(ctx)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			x.serve(ctx, c)
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("unix", filepath.Join(x.store.Dir, shareapi.Socket))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := dial().Close(); err != nil { // as a daemon that looks whether the process listens
		t.Fatal(err)
	}
	err = shareapi.Ask(ctx, dial(), func(k shareapi.ShareClient) error {
		if a, err := k.Trunks(ctx, &shareapi.TrunksRequest{}); err != nil || len(a.Trunks) > 0 {
			t.Errorf("%v, %v", a, err)
		}
		_, err := k.Ready(ctx, &shareapi.ReadyRequest{})
		return err
	})
	mu.Lock()
	if want := "ready: it has nothing of this lab"; err == nil || "ready: "+err.Error() != want || !slices.Equal(logged, []string{want}) {
		t.Errorf("%v, logged %q", err, logged)
	}
	mu.Unlock()
	for stream, want := range map[shareapi.Stream]string{ // independent of each other
		shareapi.Stream_STREAM_AGENT: "it has nothing of this lab", shareapi.Stream_STREAM_STEPS: "it has nothing of this lab", shareapi.Stream_STREAM_CLOCK: "",
		shareapi.Stream_STREAM_RAFT: "STREAM_RAFT is no stream", shareapi.Stream_STREAM_CALLS: "STREAM_CALLS is no stream", shareapi.Stream_STREAM_TRUNK: "STREAM_TRUNK is no stream",
		shareapi.Stream_STREAM_UNSPECIFIED: "is no stream", 99: "99 is no stream",
	} {
		c := dial()
		err := shareapi.Begin(c, &shareapi.Open{Stream: stream, Node: "h1"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", stream, err, want)
		}
		_ = c.Close() // nothing is under way
	}
}
