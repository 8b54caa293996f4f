// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/test/interop/rcpeer"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// endCase is the end of a message to two devices, h2 and the root h3, or of the root to a rank by unicast.
type endCase struct {
	name           string
	unicast, write bool
	emulated       bool // the root is h0, and both devices receive
	messages       int  // default 1
	deaf           int  // how often h2 does not get the last packet of the first message
	unheard        int  // how often h3 does not get the acknowledgement of it
	interrupt      bool // while the run waits
	wait           string
	code           int
	lacks          string // the run's message about h2
}

const (
	endPackets = 24
	endBytes   = endPackets * 1024
	endFirst   = 1<<24 - endPackets/2 // the first message goes beyond the wrap
	endLast    = endPackets/2 - 1
	forever    = 1 << 30
)

func (c *endCase) lab() string {
	device := func(name string, qpn int) string {
		return fmt.Sprintf("  - {name: %s, kind: external, external: {qpn: %d, send-psn: %d, receive-psn: %d, va: %#x, rkey: %#x, timeout: 16s, wait: %s, linger: 4s}}\n",
			name, qpn, endFirst, endFirst, deviceVA, deviceKey, c.wait)
	}
	hosts, workload := device("h2", 0x41)+device("h3", 0x42), "schemes: [cepheus], root: h3, group: "+group
	if c.unicast {
		hosts, workload = device("h3", 0x42), "schemes: [unicast], ranks: [h1, h3], root: h3"
	}
	if c.emulated {
		workload = strings.Replace(workload, "root: h3", "root: h0", 1)
	}
	if c.write {
		workload += ", operation: write"
	}
	return fmt.Sprintf(`name: t-end-%s
topology: {star: {hosts: 4}}
links: {rate: 8Mbps, delay: 20us}
nics: {mtu: 1024, timeout: 1s}
hosts:
%sworkloads:
  - bcast: {sizes: [%dB], iterations: %d, %s}
`, c.name, hosts, endBytes, c.messages, workload)
}

// sieve loses frames that come to a device.
type sieve struct {
	io.ReadWriteCloser
	lose func(opcode byte, psn uint32) bool
}

// Read returns the next frame that is not lost.
func (s *sieve) Read(b []byte) (int, error) {
	for {
		n, err := s.ReadWriteCloser.Read(b)
		const bth = 14 + 20 + 8
		if err != nil || n < bth+12 || b[12] != 8 || b[13] != 0 || !s.lose(b[bth], binary.BigEndian.Uint32(b[bth+8:])&0xffffff) {
			return n, err
		}
	}
}

// times returns what loses the first packets with a PSN.
func times(n int, psn uint32, response bool) func(byte, uint32) bool {
	return func(opcode byte, p uint32) bool {
		if p != psn || response != (opcode == 0x11) || n == 0 {
			return false
		}
		n--
		return true
	}
}

// device is the peer at a host. It sends again after 400 ms.
func (c *endCase) device(t *testing.T, dev *os.File, host byte, qpn, peerQPN uint32, remote string, lose func(byte, uint32) bool) *rcpeer.Peer {
	t.Helper()
	p, err := rcpeer.New(rcpeer.Config{
		MAC: net.HardwareAddr{0x52, 0x54, 0, 1, 2, host}, IP: netip.AddrFrom4([4]byte{10, 0, 0, host + 1}), QPN: qpn,
		PeerIP: netip.MustParseAddr(remote), PeerQPN: peerQPN, Eager: true, StartPSN: endFirst, PeerPSN: endFirst, MTU: 1024,
		Timeout: 400 * time.Millisecond, RecvSize: endBytes, VA: deviceVA, RKey: deviceKey, Memory: make([]byte, endBytes),
	}, &sieve{keepOpen{dev}, lose})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// TestExternalEnd: a run whose root is a device ends when that has its last acknowledgement and every other device has the message,
// whatever they have to ask for again; or it says which has not, what that lacks, and that the row is not verified.
func TestExternalEnd(t *testing.T) {
	need(t, "netns")
	unchanged(t)
	for i, c := range []endCase{
		{name: "none-lost"},
		{name: "tail-lost", deaf: 2, code: exitFidelity}, // h3 sends again
		{name: "ack-lost", unheard: 2, code: exitFidelity},
		{name: "both-lost", deaf: 1, unheard: 1, messages: 3, code: exitFidelity},
		{name: "write", write: true},
		{name: "write-ack-lost", write: true, unheard: 2, code: exitFidelity},
		{name: "unicast", unicast: true, messages: 2},
		{name: "unicast-ack-lost", unicast: true, unheard: 2, code: exitFidelity},
		{name: "emulated", emulated: true, messages: 2},
		{name: "emulated-write", emulated: true, write: true},
		{name: "dead", deaf: forever, wait: "5s", code: exitFailed, lacks: "external host h2 has acknowledged PSN 10; the last packet has PSN 11"},
		{name: "dead-write", write: true, deaf: forever, wait: "5s", code: exitFailed, lacks: "external host h2 has acknowledged PSN "},
		{name: "dead-of-two", deaf: forever, messages: 2, wait: "5s", code: exitRuntime, lacks: "1 more messages were to be sent: external host h2 has acknowledged PSN "},
		{name: "unheard", unheard: forever, wait: "5s", code: exitFidelity}, // it is silent in the end: that it has given up, it does not say
		{name: "interrupted", deaf: forever, wait: "600s", interrupt: true, code: exitInterrupted, lacks: "waiting for external hosts: h2 has acknowledged PSN "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.wait == "" {
				c.wait = "60s"
			}
			c.messages = max(c.messages, 1)
			c.run(t, fmt.Sprintf("mclend%da", i), fmt.Sprintf("mclend%db", i))
		})
	}
}

func (c *endCase) run(t *testing.T, at2, at3 string) {
	program1(t)
	ctx, stop := context.WithTimeout(t.Context(), externalWait)
	defer stop()
	lab, file, base := "t-end-"+c.name, write(t, c.lab()), t.TempDir()
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
	attach := []string{"deploy", "-q", "-r", "netns", "--attach", "h3=" + at3}
	dev3 := tap(t, at3)
	var h2, h3 *rcpeer.Peer
	if !c.unicast {
		dev2 := tap(t, at2)
		attach = append(attach, "--attach", "h2="+at2)
		h2 = c.device(t, dev2, 2, 0x41, 17, group, times(c.deaf, endLast, false))
		h3 = c.device(t, dev3, 3, 0x42, 17, group, times(c.unheard, endLast, true))
	}
	must(t, append(attach, file)...)
	fresh := held(t, lab)
	for range c.messages {
		for _, p := range []*rcpeer.Peer{h2, h3} {
			if p != nil {
				p.PostRecv(1)
			}
		}
	}
	run := start(ctx, t, "run", "-q", "-r", "netns", "--runs", base, "--format", "json", file)
	if c.unicast {
		qp, err := strconv.ParseUint(run.line(t, `^h3: .* connect QP 66 to QP (\d+) at 10.0.0.2`)[1], 10, 24)
		if err != nil {
			t.Fatal(err)
		}
		h3 = c.device(t, dev3, 3, 0x42, uint32(qp), "10.0.0.2", times(c.unheard, endLast, true))
	}
	want := c.messagesOf(ctx, t, run, h3)
	if c.interrupt {
		run.line(t, c.lacks)
		if err := run.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = io.Copy(io.Discard, run.err)
	err := run.cmd.Wait()
	if code := run.cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(run.all.String(), c.lacks) {
		t.Fatalf("%v, want exit %d and %q:\n%s\n%+v", err, c.code, c.lacks, run.all.String(), h3.Stats())
	}
	if !c.interrupt {
		c.judge(ctx, t, run, h2, want)
	}
	rested(t, lab, fresh)
	must(t, "destroy", lab)
}

// messagesOf has the root send what it is asked for, and returns what it has sent last. Of a root that cannot be through nothing is
// waited for.
func (c *endCase) messagesOf(ctx context.Context, t *testing.T, run *started, h3 *rcpeer.Peer) (message []byte) {
	t.Helper()
	if c.emulated {
		return nil
	}
	message = make([]byte, endBytes)
	for i := range c.messages {
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(message)
		r, ask := rcpeer.Request{Data: message}, "^h3: send %d bytes now"
		if c.write {
			r.Write, r.Imm, r.HasImm, ask = true, 7, true, "^h3: write %d bytes with immediate data to VA 0, with any key, now"
		}
		run.line(t, fmt.Sprintf(ask, endBytes))
		sent := h3.Post(r)
		if c.deaf == forever || c.unheard == forever {
			return message
		}
		if err := sent.Wait(ctx); err != nil { // and the run is not over before: its line for the next message comes after it
			t.Fatalf("%v; the root counted %+v\n%s", err, h3.Stats(), run.all.String())
		}
	}
	return message
}

// judge checks the run's report of its row, and whether the devices have the data that they claim.
func (c *endCase) judge(ctx context.Context, t *testing.T, run *started, h2 *rcpeer.Peer, want []byte) {
	t.Helper()
	var r runner.Report
	if err := json.Unmarshal(run.out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	row := r.Results[0]
	good := c.lacks == ""
	if row.Verified == nil || *row.Verified != good || (len(row.Unconfirmed) == 0) != good {
		t.Errorf("the row: %+v", row)
	}
	if !good {
		if u := row.Unconfirmed[0]; u.Host != "h2" || !regexp.MustCompile(`acknowledged PSN \d+; the last packet has PSN 11`).MatchString(u.Why) {
			t.Errorf("unconfirmed are %+v", row.Unconfirmed)
		}
		return
	}
	if row.Iterations != c.messages {
		t.Errorf("%d messages and not %d", row.Iterations, c.messages)
	}
	if c.unicast {
		return
	}
	if n := h2.Stats().Messages; n != uint64(c.messages) {
		t.Errorf("the run is over, and h2 has %d messages of %d", n, c.messages)
	}
	got := make([]byte, endBytes)
	if c.write {
		h2.ReadMemory(got, deviceVA)
	} else {
		for range c.messages {
			m, err := h2.Recv(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got = m.Data
		}
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(got)); sum != row.Sum || want != nil && !bytes.Equal(got, want) {
		t.Errorf("h2 has %s, the lab %s", sum, row.Sum)
	}
}
