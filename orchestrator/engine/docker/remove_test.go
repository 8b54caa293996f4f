// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"
)

// TestRemoveAsked: a container that goes while another removal of it is waited for. Docker 20.10 answers such a
// wait never, if it begins at the wrong instant, which nothing can bring about on purpose; so the engine here is
// one that does as that one does then.
func TestRemoveAsked(t *testing.T) {
	var asked, waited atomic.Int32
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete && asked.Add(1) == 1:
			w.WriteHeader(http.StatusConflict)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNotFound)
		case strings.HasSuffix(r.URL.Path, "/wait"):
			waited.Add(1)
			w.(http.Flusher).Flush() // the header comes, and the answer does not
			<-r.Context().Done()
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	c, err := client.NewClientWithOpts(client.WithHost("unix://"+socket), client.WithVersion("1.41"))
	if err != nil {
		t.Fatal(err)
	}
	if err := removeContainer(t.Context(), c, "x"); err == nil || !strings.Contains(err.Error(), "404") && !errdefs.IsNotFound(err) {
		t.Errorf("the second request's answer is %v", err)
	}
	if asked.Load() != 2 || waited.Load() != 1 {
		t.Errorf("asked %d times, waited %d times", asked.Load(), waited.Load())
	}
	asked.Store(0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := removeContainer(ctx, c, "x"); err == nil || asked.Load() > 1 {
		t.Errorf("an interrupted removal: %v, asked %d times", err, asked.Load())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}
