// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// TestLayout: the library and this package put every field in the same place.
func TestLayout(t *testing.T) {
	tools(t, "cc")
	program := filepath.Join(t.TempDir(), "layout")
	if out, err := exec.Command("cc", "-std=gnu11", "-I../../verbs", "-o", program, "testdata/layout.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var m regMR
	var x modifyQP
	var d device
	want := map[string]int{
		"reply": binary.Size(reply{}), "device": binary.Size(d), "queried": binary.Size(queried{}), "event": binary.Size(event{}),
		"v_reg_mr.access": 4 + int(unsafe.Offsetof(m.Access)), "v_reg_mr.addr": 4 + binary.Size([]uint32{m.PD, m.Access, m.Zero}),
		"v_reg_mr.iova": 4 + binary.Size([]uint32{m.PD, m.Access, m.Zero}) + 16, "v_modify_qp.attr": 4 + int(unsafe.Offsetof(x.Attr)),
		"v_attr.path_mtu": int(unsafe.Offsetof(x.Attr.PathMTU)), "v_attr.qkey": int(unsafe.Offsetof(x.Attr.QKey)), "v_attr.path": int(unsafe.Offsetof(x.Attr.Path)),
		"v_device.version": int(unsafe.Offsetof(d.Version)), "v_device.max_inline": int(unsafe.Offsetof(d.MaxInline)), "v_device.gid": int(unsafe.Offsetof(d.GID)),
		"v_ring.head": ringHead, "v_ring.tail": ringTail, "v_ring.armed": ringArmed, "v_ring.starved": ringStarved,
		"v_send.remote_addr": 8, "v_send.compare_add": 16, "v_send.swap": 24, "v_send.opcode": 32, "v_send.inline_length": 44,
		"v_send.imm": 48, "v_send.ah": 56, "v_send.qkey": 64, "v_send.sge": sendSGEs, "v_send.data": sendSGEs,
		"v_recv.sges": 8, "v_recv.sge": recvSGEs, "v_sge.length": 8, "v_sge.lkey": 12,
		"v_completion.status": 8, "v_completion.src_qp": 28, "v_completion.flags": 32, "v_completion.ns": wcTime, "clock": binary.Size(clock{}), "group_grant": binary.Size(groupGrant{}),
	}
	var p park
	var now turn
	want["turn"], want["v_turn.now"] = binary.Size(now), int(unsafe.Offsetof(now.Now))
	want["v_park.until"], want["v_park.grid"] = 4+binary.Size([]uint32{p.Kind, p.Flags, p.Zero}), 4+binary.Size([]uint32{p.Kind, p.Flags, p.Zero})+8
	want["v_seat.busy"], want["v_seat.asleep"], want["v_seat.served"], want["v_seat.said"], want["seat"] = seatBusy, seatAsleep, seatServed, seatSaid, seatLen
	cmLayout(want)
	for _, o := range []op{opHello, opAllocPD, opRegMR, opCreateCQ, opCreateQP, opModifyQP, opQueryQP, opCreateAH, opDetachMcast, opCreateSRQ, opModifySRQ, opQuerySRQ, opResizeCQ, opClock, opUnsent, opReregMR, opGroupWant, opGroupMember, opGroupRegister, opGroupStatus, opGroupSource, opProgram, opThread, opPark, opBye, opExpect, opDies,
		opCMCreate, opCMDestroy, opCMBind, opCMResolve, opCMListen, opCMConnect, opCMReject, opCMJoin, opCMQuery, opCMTimeout} {
		want[fmt.Sprint(o)] = binary.Size(body(o)) + 4
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(want) {
		t.Errorf("it says %d offsets and sizes, and not %d", len(lines), len(want))
	}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, " ")
		if n, ok := want[name]; !ok || fmt.Sprint(n) != value {
			t.Errorf("%s is %s there and %d here", name, value, n)
		}
	}
}

// cmLayout adds where the structures of librdmacm have their fields.
func cmLayout(want map[string]int) {
	var p cmParams
	var q cmQuery
	var e cmEvent
	for name, at := range map[string]int{ // independent of each other
		"cm_query": binary.Size(q), "cm_event": binary.Size(e), "v_cm_address.addr": 4 + binary.Size([3]uint32{}), "v_cm_addr.port": binary.Size(q.Local.GID),
		"v_cm_conn.params": 4 + binary.Size(uint32(0)), "v_cm_params.responder": int(unsafe.Offsetof(p.Responder)), "v_cm_params.length": int(unsafe.Offsetof(p.Length)),
		"v_cm_params.data": int(unsafe.Offsetof(p.Data)), "v_cm_join.context": 4 + binary.Size([3]uint32{}), "v_cm_join.gid": 4 + binary.Size([3]uint32{}) + 8,
		"v_cm_query.remote": int(unsafe.Offsetof(q.Remote)), "v_cm_query.qpn": int(unsafe.Offsetof(q.QPN)), "v_cm_query.timeout": int(unsafe.Offsetof(q.Timeout)),
		"v_cm_query.known": int(unsafe.Offsetof(q.Known)), "v_cm_event.local": int(unsafe.Offsetof(e.Local)), "v_cm_event.context": int(unsafe.Offsetof(e.Context)),
		"v_cm_event.params": int(unsafe.Offsetof(e.Params)),
	} {
		want[name] = at
	}
}

// TestExports: the libraries export the symbols of Debian's, which symbols.txt lists.
func TestExports(t *testing.T) {
	lib := library(t)
	list := func(command string) string {
		out, err := exec.Command("sh", "-c", command).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	const exported = ` | awk '{print $NF}' | grep @ | LC_ALL=C sort`
	for name, symbols := range map[string]string{"libibverbs.so.1": "symbols.txt", "librdmacm.so.1": "rdmacm/symbols.txt"} { // independent of each other
		have := list("nm -D --defined-only " + filepath.Join(lib, name) + exported)
		want := list(`awk '!/^#/ {print $1 ($2 == "=" ? "@@" : "@") $3}' ../../verbs/` + symbols + ` | LC_ALL=C sort`)
		if have != want || have == "" {
			t.Errorf("%s exports\n%s\nand not\n%s", name, have, want)
		}
	}
}
