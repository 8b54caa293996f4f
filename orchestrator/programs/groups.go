// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// nextProgramGroup returns the next McstID for programs. Commands that run at the same time get different ones.
func nextProgramGroup(d *orchestrator.Deployed) (id uint32, err error) {
	fail := func(err error) (uint32, error) { return 0, fmt.Errorf("find a group address for programs: %w", err) }
	f, err := os.OpenFile(filepath.Join(d.Store.Dir, "groups"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }() // which lets the lock go
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fail(err)
	}
	var b [4]byte
	if _, err := f.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return fail(err)
	}
	lower := binary.LittleEndian.Uint32(b[:]) + 1
	if lower < orchestrator.ProgramGroupFirst || lower > orchestrator.ProgramGroupLast {
		lower = orchestrator.ProgramGroupFirst
	}
	binary.LittleEndian.PutUint32(b[:], lower)
	if _, err := f.WriteAt(b[:], 0); err != nil {
		return fail(err)
	}
	return d.Graph.Groups.Net() | lower, nil
}

// groupGID returns an address of the lab as programs see it.
func groupGID(d *orchestrator.Deployed, ip uint32) nodeapi.GID {
	return wire.AddrIn(d.Graph.IPv6, ip).As16()
}

// groupOffers are connections that offer groups to programs on hosts.
type groupOffers struct {
	d     *orchestrator.Deployed
	hosts []string
	at    []*nodeapi.Groups
}

// offerAt connects to hosts, each of which is named once.
func offerAt(d *orchestrator.Deployed, hosts []string) (*groupOffers, error) {
	o := &groupOffers{d: d, hosts: hosts}
	for _, h := range hosts {
		conn, err := dialProgram(d, h)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("offer groups at %s: %w", h, err), o.close())
		}
		o.at = append(o.at, nodeapi.NewGroups(conn))
	}
	return o, nil
}

// dialProgram connects to a host's ProgramSocket, wherever the host is.
func dialProgram(d *orchestrator.Deployed, host string) (io.ReadWriteCloser, error) {
	if d.Access.Local() {
		return nodeapi.DialProgram(filepath.Join(d.Store.NodePath(host), nodeapi.ProgramSocket))
	}
	c, err := d.Access.Call(context.Background(), host, &shareapi.Open{Stream: shareapi.Stream_STREAM_GROUPS, Node: host})
	if err != nil {
		return nil, err
	}
	return shareapi.NewPackets(c), nil
}

func (o *groupOffers) close() error {
	var errs []error
	for _, g := range o.at {
		errs = append(errs, g.Close())
	}
	return errors.Join(errs...)
}

// next offers the next group at all of the hosts.
func (o *groupOffers) next(bound bool) (id uint32, err error) {
	if id, err = nextProgramGroup(o.d); err != nil {
		return 0, err
	}
	for i, g := range o.at {
		if err := g.Offer(groupGID(o.d, id), bound); err != nil {
			return 0, fmt.Errorf("offer group %v at %s: %w", wire.AddrOf(id), o.hosts[i], err)
		}
	}
	return id, nil
}

// leaseGroups gives programs on hosts, each of which is named once, the groups that they want, until the caller calls end. All that they have
// goes then.
func leaseGroups(d *orchestrator.Deployed, hosts []string) (end func(), err error) {
	o, err := offerAt(d, hosts)
	if err != nil {
		return nil, err
	}
	var conns []io.Closer
	var running, ready sync.WaitGroup
	end = func() {
		for _, c := range conns {
			_ = c.Close() // nothing is buffered
		}
		running.Wait()
		_ = o.close() // nothing is buffered
	}
	refused := make(chan error, len(hosts))
	for _, h := range hosts {
		conn, err := dialProgram(d, h)
		if err != nil {
			end()
			return nil, fmt.Errorf("lease groups at %s: %w", h, err)
		}
		conns = append(conns, conn)
		ready.Add(1)
		running.Go(func() {
			heard := sync.OnceFunc(ready.Done)
			defer heard()
			err := nodeapi.LeaseGroups(conn, heard, func() (nodeapi.GID, error) {
				id, err := o.next(false)
				return groupGID(d, id), err
			})
			if err != nil {
				refused <- fmt.Errorf("lease groups at %s: %w", h, err)
			}
		})
	}
	ready.Wait()
	select {
	case err := <-refused:
		end()
		return nil, err
	default:
		return end, nil
	}
}

// bindPoll is the interval at which Bind polls the hosts, on the wall clock.
const bindPoll = 20 * time.Millisecond

// Bind makes a group of one QP at each of the hosts, which a program there connects to the group's address. The first host
// registers the group. say prints news for the user, line by line. Bind returns nil when all members have left. It removes the
// group then, as after an interrupt.
func Bind(ctx context.Context, d *orchestrator.Deployed, hosts []string, say func(format string, args ...any)) (err error) {
	o, err := offerAt(d, hosts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	id, err := o.next(true)
	if err != nil {
		return err
	}
	say("group %v: connect an RC queue pair at each of %s to it, with PSN 0 both ways", d.Graph.Addr(id), strings.Join(hosts, ", "))
	b := &binding{o: o, gid: groupGID(d, id), qpns: make([]uint32, len(hosts)), say: say}
	for _, step := range []func() (bool, error){b.gather, b.activate, b.watch} {
		for done := false; !done; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(bindPoll):
			}
			if done, err = step(); err != nil {
				return err
			}
		}
	}
	return nil
}

// binding is a group that is being bound. Each of its steps looks once.
type binding struct {
	o    *groupOffers
	gid  nodeapi.GID
	qpns []uint32 // by host; 0: there is no member yet, or it has left
	left int
	say  func(format string, args ...any)
}

// look updates the members, and reports how many there are.
func (b *binding) look() (have int, err error) {
	for i, g := range b.o.at {
		s, err := g.Status(b.gid)
		if err != nil {
			return 0, fmt.Errorf("look at the group at %s: %w", b.o.hosts[i], err)
		}
		switch {
		case s.QPN != 0 && b.qpns[i] == 0:
			b.say("%s: QP %d", b.o.hosts[i], s.QPN)
		case s.QPN == 0 && b.qpns[i] != 0:
			b.say("%s: QP %d has left", b.o.hosts[i], b.qpns[i])
			b.left++
		}
		if b.qpns[i] = s.QPN; s.QPN != 0 {
			have++
		}
	}
	return have, nil
}

// gather waits for the members, and has the first host register them.
func (b *binding) gather() (done bool, err error) {
	have, err := b.look()
	if err == nil && b.left > 0 {
		err = errors.New("a member has left before the group was registered")
	}
	if err != nil || have < len(b.qpns) {
		return false, err
	}
	for i, h := range b.o.hosts[1:] {
		n, _ := b.o.d.Graph.Find(h)
		if err := b.o.at[0].Member(b.gid, groupGID(b.o.d, b.o.d.Graph.Nodes[n].IP), b.qpns[i+1]); err != nil {
			return false, fmt.Errorf("name the member at %s: %w", h, err)
		}
	}
	if err := b.o.at[0].Register(b.gid); err != nil {
		return false, fmt.Errorf("register the group at %s: %w", b.o.hosts[0], err)
	}
	return true, nil
}

// activate waits for the registration, and lets the members send.
func (b *binding) activate() (done bool, err error) {
	s, err := b.o.at[0].Status(b.gid)
	switch {
	case err != nil:
		return false, fmt.Errorf("look at the registration at %s: %w", b.o.hosts[0], err)
	case s.Failed:
		return false, errors.New("the group could not be registered: a switch has no room for it, or a host or a switch does not answer")
	case !s.Active:
		return false, nil
	}
	for i, g := range b.o.at {
		if err := g.Run(b.gid); err != nil {
			return false, fmt.Errorf("let %s send: %w", b.o.hosts[i], err)
		}
	}
	b.say("registered: one of them may send")
	return true, nil
}

// watch waits until all members have left.
func (b *binding) watch() (done bool, err error) {
	have, err := b.look()
	return have == 0, err
}
