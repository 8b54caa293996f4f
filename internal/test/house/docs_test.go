// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/test/golden"
)

// TestWirePage makes docs/wire.md of the bit rulers in wire's doc comments and of the
// opcode table.
func TestWirePage(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Wire formats\n\nThis page is made from the doc comments of package `wire` (`go test ./internal/test/house -run WirePage -rewrite`).\n" +
		"All multi-byte fields are in network byte order; the ICRC's least significant byte comes first.\n\n" +
		"A RoCEv2 packet is Ethernet, perhaps 802.1Q, IPv4 or IPv6, UDP to port 4791, BTH, the extension headers of its opcode, payload,\n" +
		"pad and ICRC; the port pads a frame of less than 60 bytes after the ICRC.\n\n" +
		"Hosts, switches and groups are 10/8 (package `topo` has the plan). In an IPv6 fabric (`links: {ip: 6}`) the same 32 bits end an address of\n" +
		"fd6d:6361:7374::/96, or ff15::/96 for multicast groups of UD, 224/4: McstID 10.254.0.1 is fd6d:6361:7374::afe:1. MRP records hold the 32 bits in\n" +
		"either family. RoCE has a UDP checksum of zero over both; MRP has a checksum over IPv6.\n")
	_, all := sources(t)
	order := []string{"Ethernet", "VLAN", "IPv4", "IPv6", "UDP", "BTH", "RETH", "AETH", "SACK", "DETH", "AtomicETH", "AtomicAckETH", "ImmDt", "IETH", "PFC", "MRPHeader", "MRPRecord", "MRPRegion", "MRUpdate", "ReduceImm", "ARP", "ND", "Membership", "GroupRecord", "Reporter"}
	docs := map[string]string{}
	for _, s := range all {
		if s.dir != "core/wire" || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Doc == nil {
				continue
			}
			if ts, ok := g.Specs[0].(*ast.TypeSpec); ok {
				docs[ts.Name.Name] = g.Doc.Text()
			}
		}
	}
	var p comment.Parser
	for _, name := range order {
		text := docs[name]
		if !strings.Contains(text, "+-") {
			t.Errorf("wire.%s has no bit ruler in its comment", name)
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s", name, markdown(p.Parse(text)))
	}
	b.WriteString("\n## Opcodes\n\nBegins and ends: of a message. Bytes: from the start of the BTH to the payload.\n\n| code | name | headers after the BTH | bytes | payload | begins | ends |\n|---|---|---|---|---|---|---|\n")
	for o := range 256 {
		op := wire.OpCode(o)
		if i := op.Info(); op.Is(wire.OpAssigned) {
			fmt.Fprintf(&b, "| 0x%02x | %s | %s | %d | %s | %s | %s |\n", o, op, headers(i), i.Header, mark(op.Is(wire.OpPayload)), mark(op.Is(wire.OpBegin)), mark(op.Is(wire.OpEnd)))
		}
	}
	golden.Compare(t, "docs/wire.md", b.String())
}

func mark(b bool) string {
	if b {
		return "x"
	}
	return ""
}

func headers(i *wire.OpInfo) string {
	var h []string
	for _, x := range []struct {
		has  bool
		name string
	}{{i.DETH, "DETH"}, {i.RETH, "RETH"}, {i.Atomic, "AtomicETH"}, {i.AETH, "AETH"}, {i.Imm, "ImmDt"}, {i.IETH, "IETH"}} {
		if x.has {
			h = append(h, x.name)
		}
	}
	if i.Name == "RC_ATOMIC_ACKNOWLEDGE" {
		h = append(h, "AtomicAckETH")
	}
	if i.Name == "CNP" {
		h = append(h, "16 zero bytes")
	}
	return strings.Join(h, ", ")
}

// markdown renders a doc comment: paragraphs, and preformatted text as code.
func markdown(d *comment.Doc) string {
	var b strings.Builder
	var pr comment.Printer
	for _, block := range d.Content {
		if code, ok := block.(*comment.Code); ok {
			fmt.Fprintf(&b, "```\n%s```\n\n", code.Text)
			continue
		}
		b.Write(pr.Markdown(&comment.Doc{Content: []comment.Block{block}}))
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// TestFaultTable: every scenario of docs/fallback.md's table is there, and every test that it
// names.
func TestFaultTable(t *testing.T) {
	page, err := os.ReadFile("docs/fallback.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	_, all := sources(t)
	for _, s := range all {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				tests[path.Base(s.dir)+"."+f.Name.Name] = true
			}
		}
	}
	rows := map[string]int{}
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| FLT-") && !strings.HasPrefix(line, "| R-C") || len(cells) != 3 {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z]+\\.Test[A-Za-z0-9]+)`").FindAllStringSubmatch(cells[2], -1) {
			rows[strings.TrimPrefix(cells[0], "| ")]++
			if !tests[name[1]] {
				t.Errorf("%s names %s, which there is not", cells[0], name[1])
			}
		}
	}
	for i := range 22 {
		if id := fmt.Sprintf("FLT-%d", i+1); rows[id] == 0 {
			t.Errorf("docs/fallback.md names no test for %s", id)
		}
	}
	if rows["R-C24"] == 0 || len(rows) != 23 {
		t.Errorf("docs/fallback.md has rows for %v", rows)
	}
}
