// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/counters"
)

// flipByte has the kernel flip a byte of each frame of the given length that an interface of a process's network
// namespace receives, before any socket sees it, by a program of four lines (XDP).
func flipByte(t *testing.T, pid int, device string, length, offset int) {
	t.Helper()
	type insn struct {
		op, regs uint8 // registers: destination, and source in the upper half
		off      int16
		imm      int32
	}
	program := []insn{
		{unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W, 2 | 1<<4, 0, 0},             // r2 = data
		{unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W, 3 | 1<<4, 4, 0},             // r3 = its end
		{unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_X, 4 | 2<<4, 0, 0},           // r4 = r2
		{unix.BPF_ALU64 | unix.BPF_ADD | unix.BPF_K, 4, 0, int32(length)},      // r4 += length
		{unix.BPF_JMP | unix.BPF_JGT | unix.BPF_X, 4 | 3<<4, 5, 0},             // shorter: pass
		{unix.BPF_ALU64 | unix.BPF_ADD | unix.BPF_K, 4, 0, 1},                  // r4++
		{unix.BPF_JMP | unix.BPF_JLE | unix.BPF_X, 4 | 3<<4, 3, 0},             // longer: pass
		{unix.BPF_LDX | unix.BPF_MEM | unix.BPF_B, 5 | 2<<4, int16(offset), 0}, // r5 = a byte
		{unix.BPF_ALU64 | unix.BPF_XOR | unix.BPF_K, 5, 0, 0xff},               // flipped
		{unix.BPF_STX | unix.BPF_MEM | unix.BPF_B, 2 | 5<<4, int16(offset), 0}, // back
		{unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K, 0, 0, 2 /* XDP_PASS */}, {unix.BPF_JMP | unix.BPF_EXIT, 0, 0, 0},
	}
	var code bytes.Buffer
	if err := binary.Write(&code, binary.NativeEndian, program); err != nil {
		t.Fatal(err)
	}
	license, log := []byte("GPL\x00"), make([]byte, 1<<14)
	attr := struct {
		kind, insns        uint32
		code, license      uint64
		logLevel, logBytes uint32
		log                uint64
		rest               [88]byte
	}{
		unix.BPF_PROG_TYPE_XDP, uint32(len(program)), pointer(code.Bytes()), pointer(license), 1, uint32(len(log)), pointer(log), [88]byte{},
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		t.Fatalf("load a program into the kernel: %v\n%s", errno, bytes.TrimRight(log, "\x00"))
	}
	defer unix.Close(int(fd)) //nolint:errcheck // the device holds it
	inside(t, pid, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(link, int(fd), unix.XDP_FLAGS_SKB_MODE)
	})
}

func pointer(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// TestLockstepFlipped: one byte that the kernel flips between two nodes parts the run from its simulation: the exit
// code is 6, and the frame is named.
func TestLockstepFlipped(t *testing.T) {
	need(t)
	before := snapshot(t)
	// Two data packets: one of 4096 bytes, and one of 1000 bytes. No other frame has the second length.
	file := write(t, "name: t-step-flip\ntopology: {star: {hosts: 4}}\nworkloads: [{bcast: {schemes: [cepheus], sizes: [5096B], iterations: 1}}]\n")
	must(t, "deploy", "-q", "-r", "netns", file)
	defer must(t, "destroy", "t-step-flip")
	if o := must(t, "run", "-q", "-r", "netns", "--check-digest", "--runs", t.TempDir(), file); !strings.Contains(o.err, "which is the simulation's") {
		t.Fatal(o.err)
	}
	flipByte(t, nodePID(t, "t-step-flip", "h2"), "p0", 14+20+8+12+1000+4, 600)
	o := invoke(t, nil, "run", "-q", "-r", "netns", "--check-digest", "--runs", t.TempDir(), file)
	if o.code != exitParted || !regexp.MustCompile(`from leaf0:2 to h2:0, frame \d+,`).MatchString(o.err) {
		t.Errorf("exit %d: %s", o.code, o.err)
	}
	must(t, "destroy", "t-step-flip")
	same(t, before, snapshot(t))
}

// TestLockstepForeign: frames that another program sends from a host's interface during a run do no harm, and the
// run says that it is not deterministic.
func TestLockstepForeign(t *testing.T) {
	need(t)
	must(t, "deploy", "-q", "-r", "netns", write(t, longLab))
	defer must(t, "destroy", "t-step-long")
	r := startLong(t, rand.New(rand.NewPCG(19, 1)))
	pid := nodePID(t, "t-step-long", "h1")
	for _, frame := range [][]byte{make([]byte, 60), append(bytes.Repeat([]byte{0xff}, 12), make([]byte, 1000)...)} {
		sendFrom(t, pid, "p0", frame)
	}
	if code := r.end(); code != exitOK || !strings.Contains(r.said.String(), "not deterministic: 2 frames of programs that are no nodes have come in at leaf0:1") {
		t.Errorf("exit %d: %s", code, r.said.String())
	}
	file := write(t, longLab)
	sameRun(t, exact(t, "netns", file), exact(t, "sim", file)) // the next run is not marked by it
}

// sendFrom sends a frame from an interface of a process's network namespace.
func sendFrom(t *testing.T, pid int, device string, frame []byte) {
	t.Helper()
	inside(t, pid, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}), unix.Close(fd))
	})
}

// inside calls f in the network namespace of a process.
func inside(t *testing.T, pid int, f func() error) {
	t.Helper()
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close() //nolint:errcheck // nothing was written
	there, err := netns.GetFromPid(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close() //nolint:errcheck // nothing was written
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := netns.Set(there); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f(), netns.Set(here)); err != nil {
		t.Fatal(err)
	}
}

// TestLockstepCounted: as many frames as a run has counted at each port, and no other, have passed the kernel's
// interfaces.
func TestLockstepCounted(t *testing.T) {
	need(t)
	file := lockstepLab(t, "star")
	must(t, "deploy", "-q", "-r", "netns", file)
	defer must(t, "destroy", "t-step-star")
	before := received(t, "t-step-star")
	runs := t.TempDir()
	must(t, "run", "-q", "-r", "netns", "--runs", runs, file)
	after := received(t, "t-step-star")
	b, err := os.ReadFile(filepath.Join(runs, "t-step-star-1", "counters.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Nodes []counters.Node }
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	counted := map[string]uint64{}
	for _, n := range all.Nodes {
		for _, p := range n.Ports {
			counted[fmt.Sprintf("%s:%d", n.Node, p.Port)] = p.Received
		}
	}
	if len(counted) != len(after) || len(after) != 8 {
		t.Fatalf("the run has counters of %d ports, the kernel of %d", len(counted), len(after))
	}
	for port, n := range counted {
		if kernel := after[port] - before[port]; kernel != n || n == 0 {
			t.Errorf("%s has received %d frames, and %d by the kernel's count", port, n, kernel)
		}
	}
}

// received returns how many frames the kernel has received at each interface of a lab.
func received(t *testing.T, lab string) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for node, pid := range nodePIDs(t, lab) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			words := strings.Fields(strings.Replace(line, ":", " ", 1))
			if len(words) < 3 || !strings.HasPrefix(words[0], "p") {
				continue
			}
			if port, err := strconv.Atoi(words[0][1:]); err == nil {
				n, err := strconv.ParseUint(words[2], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				all[fmt.Sprintf("%s:%d", node, port)] = n
			}
		}
	}
	return all
}
