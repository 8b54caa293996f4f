package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// Client asks one machine's daemon.
type Client struct {
	node, address string
	now           func() time.Time
	tls           *tls.Config
	http          *http.Client
}

// dialWait is how long a machine may take to accept a connection.
const dialWait = 3 * time.Second

// NewClient returns a client of the daemon of a node; nothing is sent yet.
func NewClient(c *trust.Credentials, node, address string, clock func() time.Time) *Client {
	config := c.Client(node, clock)
	return &Client{node, address, clock, config, &http.Client{
		Timeout: requestWait,
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialWait}).DialContext, TLSClientConfig: config.Clone(), TLSHandshakeTimeout: dialWait,
			MaxIdleConnsPerHost: 1, DisableCompression: true,
		},
	}}
}

// Close ends its connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks a daemon about itself, as a deployer, and for the time: ahead is by how much its clock is.
func (c *Client) Status(ctx context.Context) (st Status, ahead time.Duration, err error) {
	if err := c.ask(ctx, statusRoute(), "", nil, &st); err != nil {
		return st, 0, err
	}
	if st.Node != c.node {
		return st, 0, fmt.Errorf("it is the daemon of the node %s", st.Node)
	}
	var seen Seen
	err = c.clock(ctx, &seen)
	return st, seen.Ahead, err
}

// Probe has a machine find out about the ways to others.
func (c *Client) Probe(ctx context.Context, peers []Peer) ([]Seen, error) {
	var a probeAnswer
	if err := c.ask(ctx, probeRoute(), "", probeRequest{peers}, &a); err != nil {
		return nil, err
	}
	if len(a.Seen) != len(peers) {
		return nil, fmt.Errorf("it has probed %d of %d machines", len(a.Seen), len(peers))
	}
	return a.Seen, nil
}

// clock asks for the time a few times, and believes the answer that took the shortest.
func (c *Client) clock(ctx context.Context, seen *Seen) error {
	for i := range 4 {
		var a clockAnswer
		before := c.now()
		if err := c.ask(ctx, clockRoute(), "", nil, &a); err != nil {
			return err
		}
		after := c.now()
		if trip := after.Sub(before); i == 0 || trip < seen.RoundTrip {
			seen.RoundTrip, seen.Ahead = trip, trust.Ahead(before, after, a.Now)
		}
	}
	return nil
}

// ask makes a request and reads its answer.
func (c *Client) ask(ctx context.Context, r route, query string, body, into any) error {
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			return err
		}
	}
	q, err := http.NewRequestWithContext(ctx, r.method, "https://"+c.address+r.path+"?"+query, &b)
	if err != nil {
		return err
	}
	a, err := c.http.Do(q)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(a.Body, requestMax))
	if err = errors.Join(err, a.Body.Close()); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a.StatusCode != http.StatusOK {
		var e errorAnswer
		if json.Unmarshal(text, &e) != nil || e.Error == "" {
			e.Error = a.Status
		}
		return errors.New(e.Error)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// Closed reports whether an error says that nothing answers at a port: not even a refusal by what should listen there.
func Closed(err error) bool {
	var n net.Error
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.As(err, &n) && n.Timeout()
}
