// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Before nodes get the sockets of links between servers, frames are tried on each of them in both directions.

// Waits and sizes of that. A frame is sent again and again until the deployer has heard of all servers.
const (
	probeWait  = 15 * time.Second
	probeEvery = 20 * time.Millisecond
	probeType  = 0x88b5 // an EtherType for local experiments
	probeSmall = 128
	probeLarge = netdev.MTU + 14
)

// linkProbe is one end of a link that is tried.
type linkProbe struct {
	link int
	f    *os.File
	mac  net.HardwareAddr
	most int // largest frame that has come in
}

// probe tries the links that leave the server, replies with the frames that have arrived, and sends more until the call ends: the other end
// may have received nothing yet.
func (x *worker) probe(ctx context.Context, reply func(*shareapi.ProbeReply) error) (err error) {
	ends, err := x.probedEnds(ctx)
	defer func() {
		for _, p := range ends {
			err = errors.Join(err, p.f.Close())
		}
	}()
	if err != nil {
		return err
	}
	b := make([]byte, 1<<14)
	answered := false
	for until := time.Now().Add(probeWait); ; {
		left := false
		for _, p := range ends {
			p.try(b)
			left = left || p.most < probeLarge
		}
		if !answered && (!left || time.Now().After(until)) {
			answered = true
			a := &shareapi.ProbeReply{Came: map[int32]int32{}}
			for _, p := range ends {
				a.Came[int32(p.link)] = int32(p.most)
			}
			if err := reply(a); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(probeEvery):
		}
	}
}

// probedEnds opens a socket on each end here of a link to another server.
func (x *worker) probedEnds(ctx context.Context) (all []*linkProbe, err error) {
	p, err := x.made()
	if err != nil {
		return nil, err
	}
	if _, err := p.trunks.await(ctx); err != nil {
		return nil, err
	}
	ends, err := orchestrator.OpenRemoteEnds(ctx, p.Deployed)
	for _, e := range ends {
		all = append(all, &linkProbe{link: e.Link, f: e.File, mac: e.MAC})
	}
	return all, err
}

// try sends a frame of each size, and takes what has come in.
func (p *linkProbe) try(b []byte) {
	fd := int(p.f.Fd())
	for _, size := range []int{probeSmall, probeLarge} {
		frame := append(append(make([]byte, 0, size), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), p.mac...)
		frame = binary.BigEndian.AppendUint16(frame, probeType)
		_, _ = unix.Write(fd, frame[:size]) // what cannot be sent does not arrive: it is seen there
	}
	for {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if err != nil || n == 0 {
			return
		}
		if n >= 14 && binary.BigEndian.Uint16(b[12:]) == probeType {
			p.most = max(p.most, n)
		}
	}
}

// probeLinks has all servers try the links between them, and says what does not come through.
func (s *serverNodes) probeLinks(ctx context.Context) error {
	came := make([]map[int32]int32, len(s.placement.Servers))
	var replied sync.WaitGroup // each sends frames for the others until all have replied
	replied.Add(len(came))
	err := s.eachServer(func(i int, m *engine.Server) error {
		done := sync.OnceFunc(replied.Done)
		defer done()
		return s.askShare(ctx, m, func(k shareapi.ShareClient) error {
			probe, err := k.Probe(ctx, &shareapi.ProbeRequest{})
			if err != nil {
				return err
			}
			a, err := probe.Recv()
			came[i] = a.GetCame()
			done()
			replied.Wait()
			return err
		})
	})
	if err != nil {
		return err
	}
	var lines []string
	for i := range s.placement.Servers {
		for link, size := range came[i] { // sorted below
			k, most := int(link), int(size)
			if most >= probeLarge || k >= len(s.d.Graph.Links) {
				continue
			}
			l := &s.d.Graph.Links[k]
			far := s.placement.At[l.A.Node]
			if far == i {
				far = s.placement.At[l.B.Node]
			}
			lines = append(lines, s.probeLine(i, far, most))
		}
	}
	slices.Sort(lines)
	if lines = slices.Compact(lines); len(lines) > 0 {
		return fmt.Errorf("links between servers: %s", strings.Join(lines, "; "))
	}
	return nil
}

// probeLine describes the failure of the links from one server to another.
func (s *serverNodes) probeLine(to, from, most int) string {
	m, far := &s.placement.Servers[to], &s.placement.Servers[from]
	switch {
	case shareapi.Trunked(s.placement.Userspace, to, from):
		return fmt.Sprintf("server %s: from %s, frames of up to %d bytes arrive on links in user space, which need %d", m, far.Name, most, probeLarge)
	case most == 0:
		return fmt.Sprintf("server %s: UDP port %d lets nothing in from %s: let it pass between the servers, or write runtime: {links: userspace}",
			m, s.placement.Port, far.Name)
	}
	return fmt.Sprintf("server %s: from %s, frames of up to %d bytes arrive, and links need %d: "+
		"let IP fragments to UDP port %d pass, or raise the MTU between the servers, or write runtime: {links: userspace}",
		m, far.Name, most, probeLarge, s.placement.Port)
}
