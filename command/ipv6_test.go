// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// verified runs a lab and demands that every byte is right; how well its times fit is not
// asked.
func verified(t *testing.T, args ...string) *runner.Report {
	t.Helper()
	o := invoke(t, nil, append([]string{"run", "-q", "--runs", t.TempDir(), "--format", "json"}, args...)...)
	if o.code != 0 && o.code != exitFidelity {
		t.Fatalf("exit %d\n%s%s", o.code, o.out, o.err)
	}
	r := &runner.Report{}
	if err := json.Unmarshal([]byte(o.out), r); err != nil {
		t.Fatal(err)
	}
	if len(r.Results) == 0 {
		t.Error("no results")
	}
	for _, row := range r.Results {
		if row.Verified == nil || !*row.Verified {
			t.Errorf("row %+v", row)
		}
	}
	return r
}

// framed counts the RoCE and MRP frames of a capture, each of which must be of one family
// and VLAN with a right ICRC, and has tshark look at it.
func framed(t *testing.T, file string, v6 bool, vlan uint16) (roce, mrp int) {
	t.Helper()
	var p wire.Pool
	for _, b := range packetsOf(t, file) {
		fr, err := p.Parse(b)
		if err != nil {
			t.Fatalf("%v: %x", err, b)
		}
		switch fr.Kind() {
		case wire.KindRoCE:
			roce++
			if !fr.CheckICRC() {
				t.Errorf("wrong ICRC: %v", fr)
			}
		case wire.KindMRP:
			mrp++
		}
		if fr.Kind() != wire.KindPFC && (fr.Kind() == wire.KindOther || fr.IPv6() != v6 || fr.VLANID() != vlan) {
			t.Errorf("frame %v in VLAN %d", fr, fr.VLANID())
		}
		p.Put(fr)
	}
	tshark := needTshark(t)
	if tshark == "" {
		return roce, mrp
	}
	good := "infiniband && ip"
	if v6 {
		good = "infiniband && ipv6"
	}
	if vlan != 0 {
		good += fmt.Sprintf(" && vlan.id == %d", vlan)
	}
	show := func(filter string) string {
		out, err := exec.Command(tshark, "-r", file, "--disable-protocol", "rpcordma", "-o", "udp.check_checksum:TRUE", "-Y", filter, "-T", "fields", "-e", "frame.number").Output()
		if err != nil {
			t.Fatalf("tshark -Y %q: %v", filter, err)
		}
		return string(out)
	}
	if bad := show("_ws.malformed || udp.checksum.status == 0 && !infiniband"); bad != "" {
		t.Errorf("tshark finds malformed frames: %s", bad)
	}
	if n := strings.Count(show(good), "\n"); n != roce {
		t.Errorf("tshark finds %d frames that are %s, there are %d", n, good, roce)
	}
	return roce, mrp
}

// TestLiveIPv6: a star over IPv6 in a VLAN, on real interfaces, with frames and with trains.
// Every byte is right; what is on the links is IPv6 with the tag and a right ICRC, in both
// directions, and nothing is left behind.
func TestLiveIPv6(t *testing.T) {
	need(t)
	unchanged(t)
	const vlan = 7
	for i, links := range []string{"ip: 6, vlan: 7", "ip: 6"} {
		for _, way := range []string{"frames", "trains"} {
			t.Run(links+"/"+way, func(t *testing.T) {
				t.Parallel()
				file := write(t, starLab(fmt.Sprintf("t-ipv6-%d-%s", i, way), "links: {"+links+"}\nruntime: {io: "+way+"}\n"))
				r := verified(t, "-r", "netns", "--dilation", "2000", "--capture", "leaf0:*", file)
				conserved(t, r.RunDir)
				tag := uint16(0)
				if strings.Contains(links, "vlan") {
					tag = vlan
				}
				for port := range 4 {
					roce, mrp := framed(t, filepath.Join(r.RunDir, fmt.Sprintf("leaf0_%d.pcapng", port)), true, tag)
					if roce < 300 || mrp < 2 {
						t.Errorf("%d RoCE and %d MRP frames at port %d", roce, mrp, port)
					}
				}
			})
		}
	}
}

// TestRCIPv6: the small endpoint behind an interface is receiver and source of a group over
// IPv6: it finds the group by neighbor discovery and is found by it.
func TestRCIPv6(t *testing.T) {
	need(t)
	const group, device = group6, "fd6d:6361:7374::a00:4"
	for _, source := range []bool{false, true} {
		t.Run(map[bool]string{false: "receiver", true: "source"}[source], func(t *testing.T) {
			program1(t) // its making takes time of its own
			ctx, stop := context.WithTimeout(t.Context(), externalWait)
			defer stop()
			before := snapshot(t)
			pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "mclrc0", MTU: 4200}, PeerName: "mclrc1", PeerMTU: 4200}
			if err := netlink.LinkAdd(pair); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = netlink.LinkDel(pair) }) // it may be gone
			for _, name := range []string{"mclrc0", "mclrc1"} {
				l, err := netlink.LinkByName(name)
				if err == nil {
					err = netlink.LinkSetUp(l)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			root := "h0"
			if source {
				root = "h3"
			}
			c := externalCase{workload: "schemes: [cepheus], root: " + root, remote: group, size: 4 << 20, links: "ip: 6, "}
			c.complete()
			file := write(t, strings.Replace(c.lab("t-ext6"), "qpn: 0x42", "qpn: 17", 1))
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-ext6") })
			must(t, "deploy", "-q", "-r", "netns", "--attach", "h3=mclrc1", file)
			if o := must(t, "group", "add-member", "--lab", "t-ext6", "h3"); !strings.HasPrefix(o.out, "h3: address "+device+"/96, QP 17,") || !strings.HasSuffix(o.out, "; in each run group "+group+"\n") {
				t.Errorf("add-member says %s", o.out)
			}
			rc := func(verb string) *started {
				return start(ctx, t, "rc", verb, "--interface", "mclrc0", "--ip", device, "--remote-ip", group, "--mtu", "1024",
					"--send-psn", "0xfff800", "--receive-psn", "0xfff800", "--rate", "8Mbps", "--timeout", "16s")
			}
			var dev *started
			if !source {
				dev = rc("recv")
				dev.line(t, "^QP 17 at "+device+" is connected to QP 1 at "+group)
			}
			run := start(ctx, t, "run", "-r", "netns", "--runs", t.TempDir(), "--format", "json", file)
			if source {
				run.line(t, `^h3: send 4194304 bytes now`)
				dev = rc("send")
			}
			_, _ = io.Copy(io.Discard, run.err) // to its end
			if err := run.cmd.Wait(); err != nil && run.cmd.ProcessState.ExitCode() != exitFidelity {
				t.Fatalf("%v\n%s", err, run.all.String())
			}
			_, _ = io.Copy(io.Discard, dev.err)
			if err := dev.cmd.Wait(); err != nil {
				t.Fatalf("the device: %v\n%s", err, dev.all.String())
			}
			r := &runner.Report{}
			if err := json.Unmarshal(run.out.Bytes(), r); err != nil {
				t.Fatal(err)
			}
			if row := r.Results[0]; row.Verified == nil || !*row.Verified || row.Sum == "" || !bytes.Contains(dev.out.Bytes(), []byte("SHA-256 "+row.Sum)) {
				t.Errorf("row %+v; the device says %s", row, dev.out.String())
			}
			if source {
				want := make([]byte, c.size)
				prng.Fill(want, 1, 0)
				if got := r.Results[0].Sum; got != fmt.Sprintf("%x", sha256.Sum256(want)) {
					t.Errorf("the lab has %s", got)
				}
			}
			must(t, "destroy", "t-ext6")
			if err := netlink.LinkDel(pair); err != nil {
				t.Error(err)
			}
			same(t, before, snapshot(t))
		})
	}
}

// TestRCAddresses: what rc takes for addresses, before it touches an interface.
func TestRCAddresses(t *testing.T) {
	for _, c := range []struct{ ip, remote, want string }{
		{"10.0.0.4", "x", `remote-ip: "x" is not an IPv4 or IPv6 address`},
		{"fe80::1%eth0", "10.0.0.1", `ip: "fe80::1%eth0" is not an IPv4 or IPv6 address`},
		{"10.0.0.4", "fd6d:6361:7374::a00:1", "ip 10.0.0.4 and remote-ip fd6d:6361:7374::a00:1 are of different families"},
		{"2001:db8::1", "10.0.0.1", "ip: 2001:db8::1 is not in a lab's IPv6 fabric: its addresses are those of fd6d:6361:7374::/96"},
	} {
		o := call(t, hooks{}, "", "rc", "send", "--interface", "nosuch", "--ip", c.ip, "--remote-ip", c.remote)
		if o.code != 2 || !strings.Contains(o.err, c.want) {
			t.Errorf("%s to %s: exit %d, %s", c.ip, c.remote, o.code, o.err)
		}
	}
}
