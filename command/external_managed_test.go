// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/test/interop/rcpeer"
)

// TestExternalManaged: Debian's ucmatose at a host of the lab and a device, whose communication management is an implementation of its own,
// connect by rdma_cm through adapter and switch, with either as the active side, and exchange messages both ways across the wrap of the
// device's PSN.
func TestExternalManaged(t *testing.T) {
	need(t, "netns")
	unchanged(t)
	verbsTools(t, "ucmatose")
	const lab, iface, messages, size, port = "t-ext-managed", "mclcm0", 20, 3000, 7471 // the port is ucmatose's
	ctx, stop := context.WithTimeout(t.Context(), 2*externalWait)
	defer stop()
	dev := tap(t, iface)
	file := write(t, `name: `+lab+`
topology: {star: {hosts: 4}}
links: {rate: 8Mbps, delay: 20us}
nics: {mtu: 1024, timeout: 16s}
hosts: [{name: h3, kind: external, external: {timeout: 16s}}]
runtime: {management: true}
`)
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
	must(t, "deploy", "-q", "-r", "netns", "--attach", "h3="+iface, file)
	device := func(qpn uint32) *rcpeer.Peer {
		if err := dev.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		p, err := rcpeer.New(rcpeer.Config{
			MAC: net.HardwareAddr{0x52, 0x54, 0, 1, 2, 3}, IP: netip.MustParseAddr("10.0.0.4"), QPN: qpn, PeerIP: netip.MustParseAddr("10.0.0.2"), PeerPSN: 1<<24 - messages,
			Timeout: 16 * time.Second, Managed: true, Eager: true, RecvSize: size,
		}, keepOpen{dev})
		if err != nil {
			t.Fatal(err)
		}
		p.PostRecv(messages)
		return p
	}
	program := func(more ...string) *exec.Cmd {
		args := append([]string{"exec", "--lab", lab, "--node", "h1", "--", "ucmatose", "-C", fmt.Sprint(messages), "-S", fmt.Sprint(size)}, more...)
		c := exec.CommandContext(ctx, program1(t), args...)
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	send := func(p *rcpeer.Peer) (err error) {
		for range messages {
			err = errors.Join(err, p.Send(ctx, make([]byte, size)))
		}
		return err
	}
	recv := func(p *rcpeer.Peer) (err error) {
		for range messages {
			m, e := p.Recv(ctx)
			if err = errors.Join(err, e); e == nil && len(m.Data) != size {
				err = errors.Join(err, fmt.Errorf("a message has %d bytes", len(m.Data)))
			}
		}
		return err
	}
	t.Run("it asks", func(t *testing.T) {
		p := device(0x71)
		c := program("-s", "10.0.0.4")
		asked, err := p.Listen(ctx, port)
		if err == nil {
			err = p.Accept(ctx, nil)
		}
		if err = errors.Join(err, send(p), recv(p), p.Disconnect(ctx)); err != nil || asked.Source.String() != "10.0.0.2" || asked.MTU != 1024 {
			t.Errorf("%v; asked %+v; counted %+v", err, asked, p.Stats())
		}
		if err := c.Wait(); err != nil {
			t.Errorf("ucmatose: %v", err)
		}
		clean(t, p)
	})
	t.Run("it listens", func(t *testing.T) {
		c := program()
		var p *rcpeer.Peer
		for qpn := uint32(0x72); ; qpn++ { // until ucmatose listens
			p = device(qpn)
			_, err := p.Connect(ctx, port, nil)
			if err == nil {
				break
			}
			if !errors.Is(err, rcpeer.ErrRejected) {
				t.Fatal(err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(recv(p), send(p), p.Disconnected(ctx)); err != nil {
			t.Errorf("%v; counted %+v", err, p.Stats())
		}
		if err := c.Wait(); err != nil {
			t.Errorf("ucmatose: %v", err)
		}
		clean(t, p)
	})
	must(t, "destroy", lab)
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
