package daemon

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// Options are what a daemon needs to know.
type Options struct {
	Node    string // the ID of the Swarm's node that it runs on
	Dir     string // of its credentials
	Listen  string // address and port
	Version string
	Clock   func() time.Time
	Engine  func(ctx context.Context) error // asks the machine's engine whether it is that of Node
	Labs    Labs                            // nil: it keeps none
	Log     func(format string, args ...any)
	// Of tests: which datagrams get through, and who is told of the address. Nil: all, and nobody.
	pass      func(bytes int) bool
	listening func(address string)
}

// Waits. Credentials are looked at so often; a request and all of its answers are over in that time.
const (
	lookEvery   = 250 * time.Millisecond
	requestWait = 30 * time.Second
	requestMax  = 1 << 20 // bytes
)

// Serve is a machine's daemon. It listens as long as it has credentials that hold, which a join brings while it runs, and
// takes new ones up without a restart. It returns when the context ends.
func Serve(ctx context.Context, o Options) error {
	var s *server
	defer func() { s.close() }()
	said := ""
	say := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != said {
			said = text
			o.Log("%s", text)
		}
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		c, err := usable(o)
		switch {
		case err != nil:
			s.close()
			s = nil
			say("not listening: %v", err)
		case s != nil && s.same(c):
		default:
			s.close()
			if s, err = listen(o, c); err != nil {
				s = nil
				say("not listening: %v", err) // another process may have the port for a while
				break
			}
			say("listening at %s until %s", s.address(), c.Ends().UTC().Format(time.RFC3339))
			if o.listening != nil {
				o.listening(s.address())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// usable returns the credentials of the machine, or why there are none.
func usable(o Options) (*trust.Credentials, error) {
	c, err := Load(o.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("this machine has no certificate: mcastlab hosts up gives it one")
	case err != nil:
		return nil, err
	case c.Identity() != trust.Identity{Role: trust.Host, Node: o.Node}:
		return nil, fmt.Errorf("the certificate is of %s, and this is the host %s: mcastlab hosts up gives it another", c.Identity(), o.Node)
	case o.Clock().After(c.Ends()):
		return nil, fmt.Errorf("the certificate has ended on %s: mcastlab hosts up gives it another", c.Ends().UTC().Format(time.RFC3339))
	}
	return c, nil
}

// server is a daemon while it listens.
type server struct {
	o        Options
	c        *trust.Credentials
	file     []byte // of the credentials
	tcp      net.Listener
	udp      *net.UDPConn
	http     *http.Server
	running  sync.WaitGroup
	sessions sessions
	lent     lent
	shares   shares
}

func listen(o Options, c *trust.Credentials) (*server, error) {
	file, err := c.Marshal()
	if err != nil {
		return nil, err
	}
	s := &server{o: o, c: c, file: file, sessions: sessions{clock: o.Clock, open: map[session]*expected{}}}
	if s.tcp, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, err
	}
	bound := s.tcp.Addr().(*net.TCPAddr)
	if s.udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: bound.IP, Port: bound.Port, Zone: bound.Zone}); err != nil {
		return nil, errors.Join(err, s.tcp.Close())
	}
	s.http = &http.Server{
		Handler: s.routes(), ReadTimeout: requestWait, WriteTimeout: requestWait, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(quiet{}, "", 0), // strangers do not fill the machine's log
	}
	s.running.Go(func() { _ = s.http.Serve(tls.NewListener(s.tcp, c.Server(o.Clock))) }) // ends when it is closed
	s.running.Go(func() { s.sessions.receive(s.udp, o.pass) })
	return s, nil
}

type quiet struct{}

func (quiet) Write(b []byte) (int, error) { return len(b), nil }

func (s *server) address() string { return s.tcp.Addr().String() }

func (s *server) same(c *trust.Credentials) bool {
	file, err := c.Marshal()
	return err == nil && slices.Equal(file, s.file)
}

// close ends a server; there may be none.
func (s *server) close() {
	if s == nil {
		return
	}
	_ = s.http.Close() // and so its listener
	s.shares.close()   // which it does not know of
	_ = s.tcp.Close()
	_ = s.udp.Close()
	s.lent.close()
	s.running.Wait()
}

// served is a route, and what answers it: a message, or a connection to a share.
type served struct {
	route
	answer func(r *http.Request) (any, error)
	dial   func(ctx context.Context, lab string) (net.Conn, error) // if answer is nil
}

// table has all that the daemon answers.
func (s *server) table() []served {
	return []served{
		{statusRoute(), s.status, nil}, {probeRoute(), s.probe, nil}, {clockRoute(), s.clock, nil}, {expectRoute(), s.expect, nil},
		{arrivedRoute(), s.arrived, nil}, {startRoute(), s.startLab, nil}, {endRoute(), s.endLab, nil}, {labsRoute(), s.listLabs, nil},
		{shareRoute(), nil, s.dialShare}, {peersRoute(), nil, s.dialPeers},
	}
}

// routes serve the table. Whoever may not ask learns so and nothing else.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, x := range s.table() {
		mux.HandleFunc(x.method+" "+x.path, func(w http.ResponseWriter, r *http.Request) {
			who, err := trust.Peer(r.TLS)
			if err != nil || !slices.Contains(x.roles, who.Role) || who.Lab != "" && who.Lab != r.PathValue("lab") {
				answer(w, http.StatusForbidden, errorAnswer{fmt.Sprintf("%s may not %s %s", who, x.method, r.URL.Path)})
				return
			}
			if x.answer == nil {
				s.share(w, r, x.dial)
				return
			}
			ctx, stop := context.WithTimeout(r.Context(), requestWait)
			defer stop()
			r = r.WithContext(ctx)
			r.Body = http.MaxBytesReader(w, r.Body, requestMax)
			v, err := x.answer(r)
			if err != nil {
				answer(w, http.StatusBadRequest, errorAnswer{err.Error()})
				return
			}
			answer(w, http.StatusOK, v)
		})
	}
	return mux
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // whoever asked has gone
}

func (s *server) status(r *http.Request) (any, error) {
	st := Status{
		Schema: statusSchema, Node: s.o.Node, Version: s.o.Version, Now: s.o.Clock().UnixNano(), Ends: s.c.Ends().Unix(), Strange: s.sessions.strangers(),
	}
	if err := s.o.Engine(r.Context()); err != nil {
		st.Engine = err.Error()
	}
	return st, nil
}

func (s *server) clock(*http.Request) (any, error) { return clockAnswer{s.o.Clock().UnixNano()}, nil }

// peersMax bounds how many machines one request probes.
const peersMax = 1000

func (s *server) probe(r *http.Request) (any, error) {
	var q probeRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	if len(q.Peers) > peersMax {
		return nil, fmt.Errorf("%d peers are more than %d", len(q.Peers), peersMax)
	}
	seen := make([]Seen, len(q.Peers))
	var all sync.WaitGroup
	gate := make(chan struct{}, 16) // at once
	for i, p := range q.Peers {
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			seen[i] = s.probeOne(r.Context(), p)
		})
	}
	all.Wait()
	return probeAnswer{seen}, nil
}

func (s *server) expect(r *http.Request) (any, error) {
	e, err := s.sessions.begin()
	if err != nil || r.URL.Query().Get("links") != "true" {
		return e, err
	}
	end := s.lent.open(s.tcp.Addr().(*net.TCPAddr), func(c *net.UDPConn) { s.sessions.receive(c, s.o.pass) })
	if e.Links = end != nil; e.Links {
		s.sessions.lend(session(e.Session), end)
	}
	return e, nil
}

func (s *server) arrived(r *http.Request) (any, error) {
	id := r.URL.Query().Get("session")
	frames, err := s.sessions.arrived(id)
	if r.URL.Query().Get("end") == "true" {
		s.sessions.finish(id)
	}
	return arrivedAnswer{frames}, err
}
