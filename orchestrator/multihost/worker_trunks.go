// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/internal/trunk"
)

// A link in user space is a veth pair on each server: one end is the node's, as of any link; the other is in a namespace of the share's
// process, which passes frames between its socket there and the connection to the other server's share (package trunk). The node
// has the interface and the socket that it has of any link, and tcpdump sees what it sends. That namespace keeps the server's own
// network stack off the link, and goes with the process.

// trunks are the links in user space of a share.
type trunks struct {
	ctx    context.Context // until the share is removed
	stop   context.CancelFunc
	space  *netdev.Namespace
	byFar  map[int]*trunkLink // by server; does not change while connections are made
	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup
}

// trunkLink is the links to one server.
type trunkLink struct {
	name  string // of the server
	to    int
	files []*os.File
	ports map[int]trunk.Port
	in    *live.Receiver
	t     *trunk.Trunk
	one   sync.Mutex // held while a connection carries

	mu    sync.Mutex
	conn  net.Conn      // nil: none
	up    chan struct{} // closed while there is one
	broke int           // connections that have ended
	err   error         // why the latest has, or why there is none
}

// newTrunks prepares those of a share; nil if it has none.
func newTrunks(s *shareapi.Share) (*trunks, error) {
	x := &trunks{byFar: map[int]*trunkLink{}}
	for i := range s.Hosts {
		if i != s.Own && shareapi.Trunked(s.Userspace, s.Own, i) {
			x.byFar[i] = &trunkLink{
				name: fmt.Sprintf("%s (%s)", s.Names[i], s.Hosts[i]), to: i, ports: map[int]trunk.Port{}, in: &live.Receiver{}, up: make(chan struct{}),
			}
		}
	}
	if len(x.byFar) == 0 {
		return nil, nil
	}
	var err error
	x.space, err = netdev.Private()
	x.ctx, x.stop = context.WithCancel(context.Background())
	return x, err
}

// add makes the end that is here of a link to another server.
func (x *trunks) add(link, to int, end netdev.End) error {
	own := netdev.End{NS: x.space, Port: link, Alias: end.Alias + " trunk"}
	if err := netdev.Join(end, own); err != nil {
		return err
	}
	return x.listen(link, to, own, func(p trunk.Port) trunk.Port { return p })
}

// listen opens the socket of a link.
func (x *trunks) listen(link, to int, own netdev.End, as func(trunk.Port) trunk.Port) error {
	files, err := x.space.Sockets([]netdev.End{own}, false)
	if err != nil {
		return err
	}
	f := x.byFar[to]
	f.files = append(f.files, files...)
	f.ports[link] = as(f.in.NewPacket(int(files[0].Fd())))
	return nil
}

// enter reports whether another connection may be served: then leave has to be called.
func (x *trunks) enter() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		x.all.Add(1)
	}
	return !x.closed
}

// close ends the connections, and removes the links. There may be none.
func (x *trunks) close() error {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.stop()
	x.all.Wait()
	var err error
	for _, f := range x.byFar {
		for _, file := range f.files {
			err = errors.Join(err, file.Close())
		}
	}
	return errors.Join(err, x.space.Close())
}

// callAgain is the pause of a share before it retries a connection to another.
const callAgain = 200 * time.Millisecond

// begin has the links carry frames: this share calls those of servers with higher numbers, and is called by the others.
func (x *worker) begin(p *labPart) {
	if p.trunks == nil {
		return
	}
	for to, f := range p.trunks.byFar {
		f.t = trunk.New(f.ports)
		if to < p.share.Own || !p.trunks.enter() {
			continue
		}
		go func() {
			defer p.trunks.all.Done()
			ctx := p.trunks.ctx
			for ctx.Err() == nil {
				c, err := x.dialPeer(ctx, p, to, &shareapi.Open{Stream: shareapi.Stream_STREAM_TRUNK, From: int32(p.share.Own), Vni: int32(p.share.VNI)})
				if err == nil {
					f.carry(ctx, c)
				} else {
					f.failed(err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(callAgain):
				}
			}
		}()
	}
}

// accept serves a connection of another share, and takes the place of one that there is.
func (x *worker) accept(c net.Conn, q *shareapi.Open) error {
	p, err := x.made()
	var f *trunkLink
	if err == nil && p.trunks != nil && int(q.Vni) == p.share.VNI && int(q.From) < p.share.Own {
		f = p.trunks.byFar[int(q.From)]
	}
	if f == nil || !p.trunks.enter() {
		return shareapi.Reply(c, errors.New("it has no links in user space to that server"))
	}
	defer p.trunks.all.Done()
	f.mu.Lock()
	if f.conn != nil {
		_ = f.conn.Close() // the other end has given it up
	}
	f.mu.Unlock()
	if err := shareapi.Reply(c, nil); err != nil {
		return err
	}
	f.carry(p.trunks.ctx, c)
	return nil
}

// carry has a connection carry frames until it ends.
func (f *trunkLink) carry(ctx context.Context, c net.Conn) {
	f.one.Lock()
	defer f.one.Unlock()
	f.mu.Lock()
	f.conn = c
	close(f.up)
	f.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	err := f.t.Carry(c)
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(err, io.EOF) {
		err = errors.New("the other end has ended it")
	}
	f.conn, f.up, f.err = nil, make(chan struct{}), err
	f.broke++
}

// failed notes why there is no connection.
func (f *trunkLink) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// trunksWait limits the wait of a run for the connections to other servers.
const trunksWait = 15 * time.Second

// await waits until all connections are there. check then says whether one has ended since.
func (x *trunks) await(ctx context.Context) (check func() error, err error) {
	if x == nil {
		return func() error { return nil }, nil
	}
	ctx, cancel := context.WithTimeout(ctx, trunksWait)
	defer cancel()
	broke := map[*trunkLink]int{}
	for _, f := range x.byFar {
		f.mu.Lock()
		up := f.up
		broke[f] = f.broke
		f.mu.Unlock()
		select {
		case <-up:
		case <-ctx.Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			return nil, fmt.Errorf("its links in user space to server %s have no connection within %v: %w", f.name, trunksWait, orUnknown(f.err))
		}
	}
	return func() error {
		for f, n := range broke {
			f.mu.Lock()
			now, err := f.broke, f.err
			f.mu.Unlock()
			if now != n {
				return fmt.Errorf("the connection that its links to server %s have in user space has broken: %w", f.name, orUnknown(err))
			}
		}
		return nil
	}, nil
}

// orUnknown returns the reason, if there is one.
func orUnknown(err error) error {
	if err == nil {
		return errors.New("the other end has not called")
	}
	return err
}

// states returns the states of the links, by server.
func (x *trunks) states() (all []*shareapi.TrunkState) {
	if x == nil {
		return nil
	}
	for to, f := range x.byFar {
		f.mu.Lock()
		s := shareapi.StateOf(to, f.t.Counters())
		if f.conn == nil {
			s.Error = orUnknown(f.err).Error()
		}
		f.mu.Unlock()
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *shareapi.TrunkState) int { return int(a.To - b.To) })
	return all
}
