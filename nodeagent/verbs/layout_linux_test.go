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
		"v_completion.status": 8, "v_completion.src_qp": 28, "v_completion.flags": 32,
	}
	for _, o := range []op{opHello, opAllocPD, opRegMR, opCreateCQ, opCreateQP, opModifyQP, opQueryQP, opCreateAH, opDetachMcast} {
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

// TestExports: the library exports what Debian's does, which symbols.txt says.
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
	have := list("nm -D --defined-only " + filepath.Join(lib, "libibverbs.so.1") + exported)
	want := list(`awk '!/^#/ {print $1 ($2 == "=" ? "@@" : "@") $3}' ../../verbs/symbols.txt | LC_ALL=C sort`)
	if have != want {
		t.Errorf("it exports\n%s\nand not\n%s", have, want)
	}
}
