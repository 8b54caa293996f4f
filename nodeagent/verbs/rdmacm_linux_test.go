// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/cm"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// waitFor waits until something holds of a host, with its loop's lock.
func (h *host) waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 12000 { // two minutes, and more on a busy server
		ok := false
		h.loop.Call(vtime.Never, func(vtime.Time) { ok = holds() })
		if ok {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("it does not come about: %s", what)
}

// listening runs a server at the first host and, once it listens, a client at the second, and returns their outputs.
func listening(t *testing.T, h [2]*host, lib string, server, client []string) (said, heard string) {
	t.Helper()
	var out bytes.Buffer
	s := h[0].at(t, lib, server[0], server[1:]...)
	s.Stdout, s.Stderr = &out, &out
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	h[0].waitFor(t, "a program listens", func() bool { return h[0].server.cm.Listeners() > 0 })
	b, err := h[1].at(t, lib, client[0], client[1:]...).CombinedOutput()
	if err != nil {
		_ = s.Process.Kill()
		_ = s.Wait()
		t.Fatalf("%v: %v\n%s\nserver:\n%s", client, err, b, out.String())
	}
	if err := s.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s\nclient:\n%s", server, err, out.String(), b)
	}
	return out.String(), string(b)
}

// thorough skips a slow test, unless nothing may be skipped.
func thorough(t *testing.T) {
	t.Helper()
	if testing.Short() || os.Getenv("MCASTLAB_REQUIRE_TOOLS") == "" {
		t.Skip("MCASTLAB_REQUIRE_TOOLS=1 runs it")
	}
}

// TestConnections: Debian's programs that meet by rdma_cm run unchanged, check their data where they can, and
// leave nothing.
func TestConnections(t *testing.T) {
	lib := library(t)
	const server = "10.0.0.1"
	for i, c := range []struct {
		server, client string
		says           string // the client
	}{
		{"rping -s -a " + server + " -C 20 -V -S 300", "rping -c -a " + server + " -C 20 -v -V -S 300", "rdma-ping-19"},
		{"rping -s -a 172.31.0.1 -C 3", "rping -c -a 172.31.0.1 -C 3 -v", "rdma-ping-2"}, // by the management network's addresses
		{"ib_write_bw -R -n 200 -s 65536 -F", "ib_write_bw -R -n 200 -s 65536 -F " + server, "65536      200"},
		{"ib_send_lat -R -n 50 -F", "ib_send_lat -R -n 50 -F " + server, "rdma_cm QPs\t : ON"},
		{"ib_read_bw -R -n 50 -F -q 4", "ib_read_bw -R -n 50 -F -q 4 " + server, "rdma_cm QPs\t : ON"},
		{"ib_send_bw -R -c UD -s 512 -n 50 -F", "ib_send_bw -R -c UD -s 512 -n 50 -F " + server, "rdma_cm QPs\t : ON"},
		{"ucmatose -C 20 -c 4", "ucmatose -C 20 -c 4 -s " + server, "test complete"},
		{"udaddy -C 20 -c 4", "udaddy -C 20 -c 4 -s " + server, "test complete"},
		{"rdma_server", "rdma_client -s " + server, "end 0"},
	} {
		t.Run(strings.ReplaceAll(c.server, " ", "_"), func(t *testing.T) {
			if i > 2 {
				thorough(t)
			}
			tools(t, strings.Fields(c.server)[0])
			h, sent := hosts(t)
			if _, heard := listening(t, h, lib, strings.Fields(c.server), strings.Fields(c.client)); !strings.Contains(heard, c.says) {
				t.Errorf("the client does not say %q:\n%s", c.says, heard)
			}
			for _, h := range h {
				h.emptied(t)
			}
			if seen := opcodes(t, sent); !seen["100"] {
				t.Errorf("on the link are %v", seen)
			}
		})
	}
}

// TestNumericIPv6: in a fabric of IPv6 Debian's programs take addresses by number where no interface has one of IPv6, and names and nonsense
// are refused as ever.
func TestNumericIPv6(t *testing.T) {
	lib := library(t)
	const server = "fd6d:6361:7374::a00:1"
	alone := func(args string) []string { // in a namespace with an address of IPv4 alone, as a lab's hosts are
		const script = `ip addr add 172.31.0.1/16 dev lo && ip link set lo up && LD_PRELOAD=$0 exec "$@"`
		return append([]string{"unshare", "-n", "sh", "-c", script, filepath.Join(lib, "libmcastsysfs.so")}, strings.Fields(args)...)
	}
	tools(t, "unshare", "ip", "rping", "ucmatose")
	if os.Geteuid() != 0 {
		t.Skip("root is needed")
	}
	for _, c := range []struct{ server, client, says string }{
		{"rping -s -a " + server + " -C 3", "rping -c -a " + server + " -C 3 -v", "rdma-ping-2"},
		{"ucmatose -b " + server + " -f ip6", "ucmatose -f ip6 -s " + server, "test complete"},
	} {
		h, _ := hostsIn(t, true)
		if _, heard := listening(t, h, lib, alone(c.server), alone(c.client)); !strings.Contains(heard, c.says) {
			t.Errorf("the client does not say %q:\n%s", c.says, heard)
		}
		h[0].emptied(t)
		h[1].emptied(t)
	}
	h, _ := hostsIn(t, true)
	for _, wrong := range []string{"fd6d::6361::1", "nobody", server + "%no0"} {
		args := alone("rping -c -C 1 -a " + wrong)
		if out, err := h[1].at(t, lib, args[0], args[1:]...).CombinedOutput(); err == nil {
			t.Errorf("%s is an address:\n%s", wrong, out)
		}
	}
}

// TestDestroyedIdentifier: rdma_destroy_id waits for an event that another thread is about to have, and frees nothing under it.
func TestDestroyedIdentifier(t *testing.T) {
	lib := library(t)
	h, _ := hosts(t)
	program := filepath.Join(t.TempDir(), "destroyed")
	out, err := exec.Command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, filepath.Join("testdata", "destroyed.c"),
		filepath.Join(lib, "librdmacm.so.1"), filepath.Join(lib, "libibverbs.so.1"), "-lpthread").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range 10 {
		if out, err := h[0].at(t, lib, program, "10.0.0.2", "225.0.0.1").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	h[0].emptied(t)
}

// TestConnectionToOneself: programs at one NIC meet by its address and by that of the loopback, and nothing of it is
// on the link.
func TestConnectionToOneself(t *testing.T) {
	lib := library(t)
	tools(t, "rping")
	for _, address := range []string{"10.0.0.1", "127.0.0.1"} {
		h, sent := hosts(t)
		args := []string{"-a", address, "-C", "3", "-v", "-V"}
		_, heard := listening(t, [2]*host{h[0], h[0]}, lib, append([]string{"rping", "-s"}, args...), append([]string{"rping", "-c"}, args...))
		if !strings.Contains(heard, "rdma-ping-2") {
			t.Errorf("by %s the client says:\n%s", address, heard)
		}
		h[0].emptied(t)
		if seen := opcodes(t, sent); len(seen) > 0 {
			t.Errorf("on the link are %v", seen)
		}
	}
}

// TestMulticastJoin: mckey's datagrams reach the other member of a group that both have joined.
func TestMulticastJoin(t *testing.T) {
	thorough(t)
	lib := library(t)
	tools(t, "mckey")
	h, sent := hosts(t)
	receiver := h[0].at(t, lib, "mckey", "-m", "239.254.0.7", "-b", "10.0.0.1", "-C", "5")
	var out bytes.Buffer
	receiver.Stdout, receiver.Stderr = &out, &out
	if err := receiver.Start(); err != nil {
		t.Fatal(err)
	}
	h[0].waitFor(t, "the receiver joins", func() bool { return h[0].nic.Made().Attached > 0 })
	if b, err := h[1].at(t, lib, "mckey", "-m", "239.254.0.7", "-b", "10.0.0.2", "-C", "5", "-s").CombinedOutput(); err != nil {
		t.Errorf("the sender: %v\n%s", err, b)
	}
	if err := receiver.Wait(); err != nil || !strings.Contains(out.String(), "receiving data transfers") {
		t.Errorf("the receiver: %v\n%s", err, out.String())
	}
	for _, h := range h {
		h.emptied(t)
	}
	if seen := opcodes(t, sent); !seen["101"] { // mckey sends immediate data
		t.Errorf("on the link are %v", seen)
	}
}

// TestLibfabric: fi_pingpong over libfabric's verbs provider. That believes in a device only if an interface has its
// address, as mgmt0 has in a lab; here both programs are in a network namespace that has both addresses.
func TestLibfabric(t *testing.T) {
	thorough(t)
	lib := library(t)
	tools(t, "fi_pingpong", "unshare", "ip")
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	h, _ := hosts(t)
	const script = `set -e
ip link add f0 type veth peer name f1
ip addr add 172.31.0.1/16 dev f0; ip addr add 172.31.0.2/16 dev f0
ip link set lo up; ip link set f0 up; ip link set f1 up
export LD_LIBRARY_PATH=$1
MCASTLAB_VERBS=$2 fi_pingpong -p verbs -e msg -I 20 -S 4096 -c &
server=$!
for i in $(seq 100); do ss -Hltn | grep -q 47592 && break; sleep 0.1; done
MCASTLAB_VERBS=$3 fi_pingpong -p verbs -e msg -I 20 -S 4096 -c 172.31.0.1
wait $server`
	cmd := exec.Command("timeout", "60", "unshare", "-n", "sh", "-c", script, "sh", lib, h[0].path, h[1].path)
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Count(out, []byte("=20")) != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	for _, h := range h {
		h.emptied(t)
	}
}

// ping starts an endless pair of rping and returns when it is connected.
func ping(t *testing.T, h [2]*host, lib string) (server, client *exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	tools(t, "rping")
	said = new(bytes.Buffer)
	server = h[0].at(t, lib, "rping", "-s", "-a", "10.0.0.1")
	server.Stdout, server.Stderr = said, said
	client = h[1].at(t, lib, "rping", "-c", "-a", "10.0.0.1")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	h[0].waitFor(t, "a program listens", func() bool { return h[0].server.cm.Listeners() > 0 })
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	h[1].waitFor(t, "they are connected", func() bool { return h[1].nic.Completions() > 20 })
	return server, client, said
}

// has reports whether a message of communication management of a kind is on the tape.
func (p *tape) has(kind cm.Attribute) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := p.b.Bytes(); ; b = b[1:] {
		i := bytes.Index(b, []byte{1, 7, 2, 3}) // the versions, the class and the method
		if i < 0 || len(b) < i+18 {
			return false
		}
		if b = b[i:]; cm.Attribute(binary.BigEndian.Uint16(b[16:])) == kind {
			return true
		}
	}
}

// TestConnectionOfKilled: the peer of a program that is killed gets the end of the connection, and nothing is left.
func TestConnectionOfKilled(t *testing.T) {
	lib := library(t)
	h, sent := hosts(t)
	server, client, said := ping(t, h, lib)
	_ = client.Process.Kill()
	_ = client.Wait()
	// Chance decides by which of the two rping ends first: the event, or its READ of the client's memory.
	err := server.Wait()
	if !strings.Contains(said.String(), "DISCONNECT EVENT") && !(err != nil && strings.Contains(said.String(), "cq completion failed")) {
		t.Errorf("the server ends with %v and says:\n%s", err, said.String())
	}
	h[1].waitFor(t, "a request to disconnect is on the link", func() bool { return sent.has(cm.DREQ) })
	for _, h := range h {
		h.emptied(t)
	}
}

// TestConnectionOverRestart: programs whose NIC is restarted get the event of the device's removal, and later ones
// connect.
func TestConnectionOverRestart(t *testing.T) {
	lib := library(t)
	h, _ := hosts(t)
	server, client, _ := ping(t, h, lib)
	other, err := dial(h[0].path) // rping may end by its completions before it prints its event
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	ch, err := other.ask(opCreateChannel, &byID{})
	if err != nil {
		t.Fatal(err)
	}
	events := other.fds[len(other.fds)-1]
	end, err := other.ask(opCMCreate, &cmCreate{Channel: ch.ID, Space: uint32(cm.SpaceTCP)})
	if err != nil || end.Status != 0 {
		t.Fatal(err, end)
	}
	h[0].loop.Call(vtime.Never, func(now vtime.Time) {
		h[0].server.Restart(now)
		h[0].nic.Restart(now)
	})
	_ = server.Wait() // it fails: its device is gone
	var e cmEvent
	b := make([]byte, binary.Size(e)+1)
	if err := unix.SetsockoptTimeval(events, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(events, b); err != nil || n != binary.Size(e) {
		t.Fatalf("an event of %d bytes: %v", n, err)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &e); err != nil || e.Type != cmDeviceRemoval || e.ID != end.ID {
		t.Errorf("it is told %+v: %v", e, err)
	}
	_ = client.Process.Kill()
	_ = client.Wait()
	for _, h := range h {
		h.emptied(t)
	}
	again := []string{"rping", "-a", "10.0.0.1", "-C", "3"}
	listening(t, h, lib, append(again, "-s"), append(again, "-c"))
}

// TestHostileConnections: whatever a program asks of the communication manager, the NIC serves others and nothing is left.
func TestHostileConnections(t *testing.T) {
	lib := library(t)
	h, _ := hosts(t)
	r := rand.New(rand.NewPCG(1, 2))
	random := rand.NewChaCha8([32]byte{1})
	for range 20 {
		c, err := dial(h[0].path)
		if err != nil {
			t.Fatal(err)
		}
		ch, err := c.ask(opCreateChannel, &byID{})
		if err != nil {
			t.Fatal(err)
		}
		ids := []uint32{0, 1, ch.ID}
		for range 200 {
			o := opCMCreate + op(r.IntN(int(opCMEnd-opCMCreate)))
			b := request(o, cmBody(o))
			_, _ = io.ReadFull(random, b[4:]) // it always reads
			put := func(at int, v uint32) { copy(b[at:], idBytes(v)) }
			put(4, ids[r.IntN(len(ids))])
			switch {
			case o == opCMCreate:
				put(4, ch.ID)
				put(8, uint32([]cm.Space{cm.SpaceTCP, cm.SpaceUDP}[r.IntN(2)]))
			case o == opCMCloseChannel && r.IntN(20) > 0:
				continue
			case o == opCMBind || o == opCMResolve:
				address := [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: byte(r.IntN(4))}
				copy(b[16:], address[:])
			}
			if _, err := c.conn.Write(b); err != nil {
				t.Fatal(err)
			}
			answer, err := c.answer()
			if err != nil {
				t.Fatal(err)
			}
			if o == opCMCreate && answer.Status == 0 {
				ids = append(ids, answer.ID)
			}
		}
		c.close()
	}
	for _, h := range h {
		h.emptied(t)
	}
	tools(t, "rping")
	again := []string{"rping", "-a", "10.0.0.1", "-C", "3"}
	listening(t, h, lib, append(again, "-s"), append(again, "-c"))
}
