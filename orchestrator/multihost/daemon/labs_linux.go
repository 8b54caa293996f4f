package daemon

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// A machine's share of a lab is made by a process of its own, which the daemon has its engine start: the daemon has no right to do
// anything. It passes bytes between a deployer and that process.

// ErrNoShare says that a machine has no process of a lab.
var ErrNoShare = errors.New("no process here has a share of this lab")

// Labs are the shares of labs on a machine.
type Labs interface {
	// Start starts the process of a share, if it does not run, and returns when it takes calls.
	Start(ctx context.Context, lab string) error
	// Dial calls it. It returns ErrNoShare if it does not run.
	Dial(ctx context.Context, lab string) (net.Conn, error)
	// DialPeers calls what of it is for shares of the same lab on other machines.
	DialPeers(ctx context.Context, lab string) (net.Conn, error)
	// End ends it. What it has made it has to have removed before.
	End(ctx context.Context, lab string) error
	// List names the labs that have one here.
	List(ctx context.Context) ([]string, error)
}

func startRoute() route { return route{"POST", "/v1/labs/{lab}", []trust.Role{trust.Deployer}} }
func endRoute() route   { return route{"DELETE", "/v1/labs/{lab}", []trust.Role{trust.Deployer}} }
func labsRoute() route  { return route{"GET", "/v1/labs", []trust.Role{trust.Deployer}} }
func shareRoute() route { return route{"GET", "/v1/labs/{lab}/share", []trust.Role{trust.Deployer}} }
func peersRoute() route { return route{"GET", "/v1/labs/{lab}/peers", []trust.Role{trust.Share}} }

type (
	nothing    struct{}
	labsAnswer struct {
		Labs []string `json:"labs"`
	}
)

// labOf returns the lab that a request is about.
func (s *server) labOf(r *http.Request) (string, error) {
	name := r.PathValue("lab")
	if !trust.LabOK(name) {
		return "", fmt.Errorf("%q cannot be the name of a lab", name)
	}
	if s.o.Labs == nil {
		return "", errors.New("this daemon keeps no labs")
	}
	return name, nil
}

func (s *server) startLab(r *http.Request) (any, error) {
	name, err := s.labOf(r)
	if err != nil {
		return nil, err
	}
	return nothing{}, s.o.Labs.Start(r.Context(), name)
}

func (s *server) endLab(r *http.Request) (any, error) {
	name, err := s.labOf(r)
	if err != nil {
		return nil, err
	}
	return nothing{}, s.o.Labs.End(r.Context(), name)
}

func (s *server) listLabs(r *http.Request) (any, error) {
	if s.o.Labs == nil {
		return labsAnswer{[]string{}}, nil
	}
	all, err := s.o.Labs.List(r.Context())
	return labsAnswer{append([]string{}, all...)}, err
}

func (s *server) dialShare(ctx context.Context, lab string) (net.Conn, error) {
	return s.o.Labs.Dial(ctx, lab)
}

func (s *server) dialPeers(ctx context.Context, lab string) (net.Conn, error) {
	return s.o.Labs.DialPeers(ctx, lab)
}

// share passes bytes between whoever asked and a share, until one of them has no more.
func (s *server) share(w http.ResponseWriter, r *http.Request, dial func(ctx context.Context, lab string) (net.Conn, error)) {
	name, err := s.labOf(r)
	var far net.Conn
	if err == nil {
		far, err = dial(r.Context(), name)
	}
	if err != nil {
		answer(w, http.StatusBadRequest, errorAnswer{err.Error()})
		return
	}
	near, b, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = far.Close() // nothing was sent
		answer(w, http.StatusBadRequest, errorAnswer{err.Error()})
		return
	}
	if t, ok := near.(*tls.Conn); ok {
		if c, ok := t.NetConn().(*net.TCPConn); ok {
			err = c.SetKeepAliveConfig(alive())
		}
	}
	_, werr := near.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: mcastlab-share\r\n\r\n"))
	if err = errors.Join(err, werr, near.SetDeadline(time.Time{})); err != nil || !s.shares.add(near) {
		_, _ = near.Close(), far.Close() // nothing was sent
		return
	}
	defer s.shares.end(near)
	defer guard(near, aliveIdle, aliveCount*aliveIdle)()
	shareapi.Join(near, far, b.Reader)
}

// shares are the connections to shares, which end with the server.
type shares struct {
	mu   sync.Mutex
	open map[net.Conn]bool
	over bool
}

func (s *shares) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	if s.open == nil {
		s.open = map[net.Conn]bool{}
	}
	s.open[c] = true
	return true
}

func (s *shares) end(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

func (s *shares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for c := range s.open {
		_ = c.Close() // whoever uses it sees that
	}
}

// StartLab has a machine start the process of its share of a lab.
func (c *Client) StartLab(ctx context.Context, lab string) error {
	return c.ask(ctx, startRoute().of(lab), "", nil, &nothing{})
}

// EndLab ends it.
func (c *Client) EndLab(ctx context.Context, lab string) error {
	return c.ask(ctx, endRoute().of(lab), "", nil, &nothing{})
}

// Labs lists the labs that have a share on a machine.
func (c *Client) Labs(ctx context.Context) ([]string, error) {
	var a labsAnswer
	err := c.ask(ctx, labsRoute(), "", nil, &a)
	return a.Labs, err
}

// DialShare calls the process of a machine's share of a lab.
func (c *Client) DialShare(ctx context.Context, lab string) (net.Conn, error) {
	return c.connect(ctx, shareRoute().of(lab))
}

// DialPeers calls it as a share of the same lab on another machine.
func (c *Client) DialPeers(ctx context.Context, lab string) (net.Conn, error) {
	return c.connect(ctx, peersRoute().of(lab))
}

// connect makes a request whose answer is a connection.
func (c *Client) connect(ctx context.Context, r route) (net.Conn, error) {
	d := tls.Dialer{NetDialer: &net.Dialer{
		Timeout: dialWait, KeepAliveConfig: alive(),
	}, Config: c.tls}
	conn, err := d.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	unguard := guard(conn, aliveIdle, aliveCount*aliveIdle)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	q, err := http.NewRequest(r.method, "https://"+c.address+r.path, nil)
	if err == nil {
		q.Header.Set("Connection", "Upgrade")
		q.Header.Set("Upgrade", "mcastlab-share")
		err = q.Write(conn)
	}
	b := bufio.NewReader(conn)
	var a *http.Response
	if err == nil {
		a, err = http.ReadResponse(b, q)
	}
	if err == nil && a.StatusCode != http.StatusSwitchingProtocols {
		var e errorAnswer
		if text, _ := io.ReadAll(io.LimitReader(a.Body, requestMax)); json.Unmarshal(text, &e) != nil || e.Error == "" {
			e.Error = a.Status
		}
		if err = errors.New(e.Error); e.Error == ErrNoShare.Error() {
			err = ErrNoShare
		}
	}
	if err != nil {
		unguard()
		_ = conn.Close() // the first error is the one that counts
		return nil, err
	}
	return &shareConn{conn, b, unguard}, nil
}

// shareConn is a connection of which something has been read ahead.
type shareConn struct {
	net.Conn
	b       *bufio.Reader
	unguard func()
}

// Close implements net.Conn.
func (c *shareConn) Close() error {
	c.unguard()
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *shareConn) Read(b []byte) (int, error) { return c.b.Read(b) }
