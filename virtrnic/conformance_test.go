// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/test/golden"
	"github.com/mcastlab/mcastlab/internal/test/patch"
)

// promise is a row of docs/verbs.md: the NIC's promise, rdma-core's tests of the same, this project's
// test, and a patch of the source (in one file, a text that occurs once) under which our test fails.
type promise struct {
	what     string
	rdmacore string
	test     string
	file     string
	old, new string
}

var promises = []struct {
	title string
	rows  []promise
}{
	{"Queue pairs", []promise{
		{"RC state table, every pair of states", "test_qp.py: test_create_qp_*, test_modify_qp", "TestTransitions", "modify.go",
			"{StateRTS, StateSQD, 0, AttrEnSQDAsyncNotify},\n\t{StateSQD, StateRTS, 0, AttrCurState | AttrAccessFlags | AttrMinRNRTimer},",
			"{StateSQD, StateRTS, 0, AttrCurState | AttrAccessFlags | AttrMinRNRTimer},"},
		{"required and superfluous attributes", "test_qp.py: test_modify_qp", "TestAttributes", "modify.go", "if extra := given &^ (t.required | t.optional); extra != 0 {", "if extra := given &^ (t.required | t.optional); extra != 0 && false {"},
		{"UC and UD state tables", "test_qp.py: test_create_qp_with_attr", "TestServiceTransitions", "modify.go", "{StateReset, StateInit, AttrPKeyIndex | AttrPort | AttrQKey, 0},", "{StateReset, StateInit, AttrPKeyIndex | AttrPort, AttrQKey},"},
		{"query returns what was set", "test_qp.py: test_query_qp", "TestQueryQP", "modify.go", "set(&d.QKey, a.QKey, mask&AttrQKey)", ""},
		{"caps of a queue pair", "test_qp.py: test_query_qp", "TestQueueCaps", "qp.go", "init.MaxInline < 0 || init.MaxInline > MaxInlineData", "init.MaxInline < 0"},
		{"posting in RESET, INIT, RTR is refused, a full queue too", "utils.py: bad state and full queue flows", "TestPostInWrongState", "post.go", "case q.state == StateReset || q.state == StateInit || q.state == StateRTR:", "case q.state == StateReset:"},
		{"numbers come back as late as can be; late packets find nothing", "", "TestDemux", "nic.go", "if q == nil {\n\t\treturn nil, DropNoQP\n\t}", "if q == nil {\n\t\treturn nil, DropState\n\t}"},
	}},
	{"SEND and WRITE", []promise{
		{"RC SEND of all sizes, with immediate", "test_qpex.py: test_qp_ex_rc_send, _send_imm", "TestSendSizes", "requester.go", "f.AddImm(wire.ImmDt(w.imm))", "f.AddImm(wire.ImmDt(w.imm + 1))"},
		{"RC WRITE, with and without immediate", "test_qpex.py: test_qp_ex_rc_rdma_write, _write_imm", "TestWrite", "requester.go", "f.AddRETH(wire.RETH{VA: w.remoteAddr,", "f.AddRETH(wire.RETH{VA: w.remoteAddr + 1,"},
		{"WRITE of no bytes does not look at its key", "test_qpex.py: test_qp_ex_rc_rdma_write_zero_length", "TestZeroLengthWrite", "responder.go", "if h.DMALen > 0 { // a zero-length", "if true { // a zero-length"},
		{"scatter-gather lists of SEND, WRITE, READ", "utils.py: get_send_elements, large SGL flows", "TestScatterGather", "sgl.go", "off -= uint64(e.Length)\n\t\t\tcontinue", "continue"},
		{"too many pieces, a bad piece anywhere", "utils.py: large SGL flow", "TestScatterGatherLimits", "sgl.go", "for _, e := range l {\n\t\tif m, _ :=", "for _, e := range l[1:] {\n\t\tif m, _ :="},
		{"inline data is taken at posting", "test_qpex.py (max_inline_data)", "TestInline", "post.go", "x.inline = append(x.inline, wr.Inline...)", "x.inline = wr.Inline"},
		{"unsignalled requests", "base.py: sq_sig_all", "TestUnsignalled", "requester.go", "if q.sigAll || w.flags&SendSignaled != 0 {", "if true {"},
		{"SEND with invalidate", "", "TestSendWithInvalidate", "mr.go", "m.closed = true", ""},
		{"memory at an address and with a key of the application's choice (not in the verbs)", "", "TestRegMRAs", "mr.go", "return n.chosen[key]", "return nil"},
		{"acknowledgements as often as asked", "", "TestAckEvery", "requester.go", "ask := last || (i+1)%n.ackEvery == 0", "ask := last"},
		{"nothing allocates in steady state", "", "TestNoAllocations", "sgl.go", "if k := len(n.spare); k > 0 {", "if k := len(n.spare); k > 1<<30 {"},
		{"packet by packet round robin of queue pairs", "", "TestRoundRobin", "transmit.go", "q := round.Pop()", "for k := round.Len(); k > 1; k-- {\n\t\t\tround.Push(round.Pop())\n\t\t}\n\t\tq := round.Pop()"},
	}},
	{"READ and atomics", []promise{
		{"READ of all sizes through the wrap of the PSN", "test_qpex.py: test_qp_ex_rc_rdma_read", "TestRead", "resources.go", "r.epsn = r.epsn.Add(int(e.packets))", "r.epsn += wire.PSN(e.packets)"},
		{"READ of no bytes", "test_qpex.py: test_qp_ex_rc_rdma_read_zero_size", "TestRead", "resources.go", "return length == 0 || m != nil", "return m != nil"},
		{"compare-and-swap, fetch-and-add", "test_atomic.py: test_atomic_cmp_and_swap, _fetch_and_add; test_qpex.py: test_qp_ex_rc_atomic_*", "TestAtomics", "resources.go", "case original == h.Compare:", "default:"},
		{"rights, keys, ranges, domains, alignment, depth", "test_atomic.py: test_atomic_invalid_qp_access, _invalid_mr_access, _non_aligned_addr, _invalid_lkey, _invalid_rkey", "TestReadAtomicErrors", "resources.go", "case need == AccessRemoteAtomic && e.va&7 != 0:", "case need == AccessRemoteAtomic && e.va&3 != 0:"},
		{"initiator depth and responder resources", "", "TestInitiatorDepth", "reader.go", "d > 0 && int(r.asked) >= d {", "d > 0 && r.asked > d {"},
		{"fences", "", "TestFence", "reader.go", "if w.traits&isFenced != 0 && r.asked > 0 {", "if w.traits&isFenced != 0 && r.asked > 9 {"},
		{"a lost answer is noticed by the next", "", "TestImpliedNak", "reader.go", "q.nic.stats.ImpliedNAK++\n\tr.handleNak(now, q)", "q.nic.stats.ImpliedNAK++"},
		{"a READ is repeated from the first missing answer", "", "TestReadRetryPartly", "reader.go", "done := uint32(r.nxt-w.first) * uint32(q.mtu)", "done := uint32(0)\n\t\tr.nxt, bth.PSN = w.first, r.psn(w.first)"},
		{"repeats are answered within the first request only, rights checked again (promise D6)", "", "TestReplayChecks", "resources.go", "case done+uint64(h.DMALen) > uint64(e.length):", "case h.DMALen > e.length:"},
		{"atomics are applied once", "", "TestReplayChecks", "resources.go", "n.stats.Replayed++", "if n.stats.Replayed++; x.kind == respondAtomic {\n\t\tn.execute(q.pd, f)\n\t}"},
		{"the repeat of a WRITE is not acknowledged with a READ's PSN", "", "TestDuplicateBeforeRead", "resources.go", "last = at.Add(-1)", "_ = at"},
		{"answers that do not fit", "", "TestBadResponses", "reader.go", "return (op == wire.OpReadRespLast || op == wire.OpReadRespOnly) && uint64(f.PayloadLen()) == rest", "return uint64(f.PayloadLen()) == rest"},
		{"any single frame lost, doubled or late", "", "TestReadEveryLoss", "resources.go", "if !ok || r.rewind(x) ||", "if !ok || x.kind == respondAtomic || r.rewind(x) ||"},
		{"random faults, both sides, PSNs near 0, 2^23, 2^24", "", "TestRandomReads", "reader.go", "return max(w.first, r.una)", "return seq"},
		{"a READ of more than the window", "", "TestReadOverWindow", "reader.go", "return w.end()-r.una <= maxOutstanding", "return w.end()-r.una <= q.nic.window"},
		{"a NAK waits behind READ answers", "", "TestNakBehindRead", "qp.go", "if !q.rq.final {", "if true {"},
		{"hashed and phantom memory", "", "TestReadMemory", "memory.go", "if !m.holds(off, off+uint64(len(b))) {", "if true {"},
		{"wire transcripts", "", "TestVerbTranscripts", "resources.go", "case first && last:\n\t\top = wire.OpReadRespOnly", "case first && last:\n\t\top = wire.OpReadRespLast"},
	}},
	{"UC", []promise{
		{"SEND and WRITE of all sizes, nothing comes back", "test_qp.py: UC queue pairs", "TestUC", "requester.go", "op+wire.OpCode(q.service)<<5, psn", "op, psn"},
		{"a lost packet costs its message", "", "TestUCLoss", "datagram.go", "} else if gap || !r.active {", "} else if !r.active {"},
		{"a WRITE lands in part", "", "TestUCPartialWrite", "datagram.go", "gap := f.PSN() != r.epsn", "gap := f.PSN().Before(r.epsn)"},
		{"what is dropped, and why", "", "TestUCDrops", "datagram.go", "return DropNoReceive\n\tcase wire.SyndromeRemoteAcc:\n\t\treturn DropAccess", "return DropNoReceive\n\tcase wire.SyndromeRemoteAcc:\n\t\treturn DropInvalid"},
		{"SQE: only the send queue stops", "", "TestSQE", "qp.go", "r.una, r.maxSeq, r.end, r.cursor = r.nxt, r.nxt, r.nxt, 0", "_ = r"},
		{"random faults", "", "TestRandomUnreliable", "datagram.go", "r.active = false // the message before has lost its end; the new one takes its receive", "r.hasWR = false"},
	}},
	{"UD and multicast", []promise{
		{"datagrams, header of 40 bytes, immediate", "test_qpex.py: test_qp_ex_ud_send, _ud_send_imm, _ud_zero_size", "TestUD", "datagram.go", "copy(grh[GRHLen-len(ip):], ip)", "copy(grh, ip)"},
		{"header and data over pieces", "", "TestUDScatter", "sgl.go", "return n.scatter(pd, l, off, f.PayloadBytes(), f.PayloadLen())", "return n.scatter(pd, l, 0, f.PayloadBytes(), f.PayloadLen())"},
		{"IPv6 header", "", "TestUDIPv6", "datagram.go", "grh, ip := n.scratch[:GRHLen], f.IPHeader()", "grh, ip := n.scratch[:GRHLen], f.IPHeader()[:20]"},
		{"Q_Key, no receive, receive too small", "test_qpex.py (UD_QKEY)", "TestUDDrops", "datagram.go", "case f.DETH().QKey != q.attr.QKey:", "case f.DETH().QKey>>31 != 0:"},
		{"datagram beyond the MTU, opcodes the service lacks", "", "TestUDLimits", "datagram.go", "case int(w.length) > q.mtu:", "case int(w.length) > 2*q.mtu:"},
		{"attach and detach; each member one copy", "test_rdmacm.py: multicast", "TestMulticast", "events.go", "if m == q {\n\t\t\treturn nil\n\t\t}", "if m == q {\n\t\t\tbreak\n\t\t}"},
		{"limits of groups", "man ibv_attach_mcast", "TestMulticastLimits", "events.go", "if len(members) >= MaxMcastQPs &&", "if len(members) >= MaxMcastQPs+1 &&"},
		{"what is of another address family or VLAN", "", "TestDemux", "nic.go", "dst-n.alias >= n.aliases || !n.mine(f)", "dst-n.alias >= n.aliases"},
		{"what is no datagram of the group", "", "TestMulticastDemux", "nic.go", "case f.DestQP() != wire.QPNMulticast:", "case false:"},
		{"a datagram's class is its address handle's", "", "TestUDClasses", "datagram.go", "q.prio = r.wqes.At(int(r.cursor)).extras.ud.AH.prio", "q.prio = 1"},
		{"UC by a group: WRITEs of all who send to it, for members of the service (not in the verbs)", "", "TestUCMulticast", "nic.go", "case q.service != f.OpCode().Service():", "case false:"},
	}},
	{"Shared receive queues, completion queues, events", []promise{
		{"traffic over an SRQ", "test_srq.py: test_rc_srq_traffic", "TestSRQ", "qp.go", "q.recv = &init.SRQ.queue", "q.recv = &q.own"},
		{"limit event, once", "test_srq.py: test_modify_srq_limit", "TestSRQLimit", "srq.go", "if s.queue.wqes.Len() < s.limit {\n\t\ts.limit = 0", "if s.queue.wqes.Len() < s.limit {"},
		{"ERR leaves shared buffers alone", "", "TestSRQError", "qp.go", "q.nic.event(EventLastWQEReached, q) // receives in the SRQ stay for other queue pairs", ""},
		{"what CreateSRQ refuses", "", "TestSRQLimits", "qp.go", "init.SRQ.nic != n || init.Type == TypeUC", "init.SRQ.nic != n"},
		{"random faults: buffers, order and limits", "", "TestRandomSRQ", "srq.go", "if s.queue.wqes.Len() < s.limit {", "if s.queue.n <= s.limit {"},
		{"event or polling, solicited or any", "test_cq_events.py: test_cq_events_rc; test_cq.py: test_create_cq_with_comp_channel", "TestCompChannel", "events.go", "c.armed = armedNot\n\t\tc.channel", "c.channel"},
		{"solicited WRITE with immediate and datagrams", "test_cq_events.py: test_cq_events_ud", "TestSolicitedDatagram", "datagram.go", "PSN: psn, Solicited: w.flags&SendSolicited != 0,", "PSN: psn,"},
		{"overrun ends who completes there", "", "TestCQOverrunEvents", "cq.go", "}\n\t\treturn true", "\treturn true\n\t\t}\n\t\treturn false"},
		{"depths, resize", "test_cq.py: test_create_cq_bad_flow, test_resize_cq", "TestCQSize", "cq.go", "if depth < max(1, c.ring.Len()) ||", "if depth < 1 ||"},
		{"communication established", "", "TestCommEst", "nic.go", "if q.state == StateRTR && !q.established {", "if q.state == StateRTR {"},
		{"send queue drained", "man ibv_modify_qp", "TestDrainAsync", "requester.go", "q.nic.event(EventSQDrained, q)", ""},
		{"SQD finishes what began", "", "TestDrain", "requester.go", "r.nxt < r.drainTo; q.state", "r.nxt < r.drainTo+9; q.state"},
	}},
	{"Errors", []promise{
		{"every completion status", "", "TestStatuses", "reader.go", "r.failOldest(now, q, WCFatalErr)", "r.failOldest(now, q, WCBadRespErr)"},
		{"flush order, RESET brings back", "", "TestFlushOrder", "qp.go", "for q.sq.wqes.Len() > 0 {\n\t\tw := q.sq.pop(q)\n\t\tq.complete", "for q.sq.n > 1 {\n\t\tw := q.sq.pop(q)\n\t\tq.complete"},
		{"remote errors of WRITE and SEND", "test_mr.py: access flags", "TestRemoteErrors", "mr.go", "m.access&need != need {", "false {"},
		{"local protection, in its turn", "", "TestLocalProtection", "requester.go", "if r.cursor == 0 {\n\t\tr.failOldest", "if true {\n\t\tr.failOldest"},
		{"memory deregistered under a message", "test_mr.py: test_dereg_mr_twice", "TestMemoryTakenAway", "mr.go", "m.gone = true", ""},
		{"RNR wait and recovery", "", "TestRNR", "requester.go", "q.nic.timers.Set(q.timerRNR(), now.Add(RNRTimer(s.RNRCode())))", ""},
		{"RNR timers by table", "", "TestRNRTable", "limits.go", "20480, 30720, 40960", "20480, 30720, 40900"},
		{"retry limits", "", "TestRetryLimits", "requester.go", "if q.attr.RNRRetry != 7 &&", "if q.attr.RNRRetry < 6 &&"},
		{"timeout 0 never fires", "", "TestNoTimeout", "requester.go", "if d == 0 || r.rnrWait", "if r.rnrWait"},
		{"packets that break a message's rules", "", "TestBadRequests", "responder.go", "info.Flags&wire.OpBegin == 0 && size == 0,", ""},
		{"FLT-12: pauses, long ones, in each direction", "", "TestLongPauses", "transmit.go", "t.until[i] = now.Add(n.port.Serialize(int(q) * wire.PauseQuantumBits / 8))", "t.until[i] = now.Add(n.port.Serialize(int(q)))"},
		{"FLT-18: a wrong key at the receiver reaches the sender; nothing lands", "", "TestWrongKey", "responder.go", "r.endReceive(now, q, status)\n\tif nak ==", "r.final = true\n\tif nak =="},
		{"FLT-22: two WRITEs, the first one's first packet lost", "", "TestFirstWriteRepeated", "requester.go", "off := uint64(i) * uint64(q.mtu)", "off := uint64(i) * uint64(q.mtu)\n\tif r.nxt < r.maxSeq {\n\t\tw.remoteAddr = r.wqes.At(r.n - 1).remoteAddr\n\t}"},
		{"random faults of SEND and WRITE", "", "TestRandomWrites", "responder.go", "case d < 0:\n\t\tn.stats.DuplicateRequest++\n\t\tr.duplicate(now, q, f)\n\t\treturn", "case d < -9:\n\t\tr.duplicate(now, q, f)\n\t\treturn"},
	}},
	{"Loopback", []promise{
		{"queue pairs at the same NIC, all services and requests; nothing leaves it", "utils.py: all traffic of its tests is on one device", "TestLoopback", "loopback.go", "dst != n.ip", "dst == n.ip"},
		{"a queue pair connected to itself", "", "TestLoopbackSameQP", "qp.go", "q.nic.meets(q.attr.AV.DGID)", ""},
		{"it shares the port's rate, and crosses no link", "", "TestLoopbackTime", "loopback.go", "n.port.HoldUntil(at)", ""},
		{"a datagram to a group comes back to the members at its NIC, to its sender too unless that blocks it", "man ibv_create_qp_ex: IBV_QP_CREATE_BLOCK_SELF_MCAST_LB; test_rdmacm.py: multicast", "TestMulticastLoopback", "loopback.go", "f.DETH().SrcQP != q.num", "true"},
		{"a pause and a stall hold it, a restart loses it", "", "TestLoopbackHeld", "command.go", "n.drop(now, n.back.Pop().f, DropRestart)", "n.pool.Put(n.back.Pop().f)"},
	}},
}

const verbsIntro = `# Verbs

This page is made from the table in ` + "`virtrnic/conformance_test.go` (`go test ./virtrnic -run VerbsPage -rewrite`)" + `. It lists what the NIC promises, the
tests of rdma-core that ask the same of a device, and our test. Each row has a patch, named by its number in the lists below the tables: under it
the test fails. ` + "`MCASTLAB_PATCHES=all go test ./virtrnic -run TestPatches -timeout 60m`" + ` applies each patch to a copy of its file, runs the test and expects
that; ` + "`MCASTLAB_PATCHES=12` or `12-20`" + ` picks numbers. Every run checks that tests exist and patches apply.

Services: RC, UC, UD. Work requests: SEND, WRITE (both with immediate), SEND with invalidate, READ, compare-and-swap, fetch-and-add. Not offered: RD and XRC,
memory windows, local invalidate, TSO, FLUSH, ATOMIC_WRITE, alternate paths. Of ` + "`ibv_wc_status`" + ` these never occur: LOC_EEC_OP_ERR, LOC_RDD_VIOL_ERR,
REM_INV_RD_REQ_ERR, INV_EECN_ERR, INV_EEC_STATE_ERR (all of RD), MW_BIND_ERR (no windows), REM_ABORT_ERR (XRC), RESP_TIMEOUT_ERR (no device uses it),
GENERAL_ERR (nothing is left for it), TM_ERR and TM_RNDV_INCOMPLETE (tag matching). What the specification leaves open is decided so:

* A packet to the NIC's own address waits for its turn at the port, takes the port's time and comes back when its last bit has passed. It crosses no link: no switch, capture or
  fault of a link sees it. A pause of its class holds it, and it goes past the receive buffer. What is sent to a multicast group of UD comes back, as a copy, to the members
  at the NIC whose queue pairs were made with Loopback: those of programs all are, and with ` + "`IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`" + ` a queue pair does not get its own.
* A buffer that a UC message lost is used by the next message; a datagram that does not fit its buffer is dropped and the buffer stays, as with rxe.
* UC takes the first packet of a message with any PSN, as rxe does; a frame doubled by the network is a message received twice.
* An acknowledgement beyond an unanswered READ or atomic is an implied NAK and costs a retry, once per missing answer.
* A retry count of 7 means seven (rxe: without end); an RNR retry count of 7 means without end.
* Numbers of queue pairs and keys of regions come back as late as can be: a number after 255 queue pairs at the least, and usually millions; a key after 256 regions. An object
  that others use cannot be destroyed; the asynchronous events of a queue pair go with it.
* A fatal NAK leaves after the answers to earlier READs, which complete.
* Atomics need real memory and work on little-endian words.
* Multicast groups of UD are 224/4: in an IPv4 fabric with MAC 01:00:5e and 23 bits, in an IPv6 fabric as ff15::/96 with the same last 32 bits and MAC 33:33. ` + "[Programs that use libibverbs](libibverbs.md#multicast)" + `
  says which group an MGID is.
* A packet of the other address family or of another VLAN is for another host.
`

// TestVerbsPage makes docs/verbs.md.
func TestVerbsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(verbsIntro)
	n := 0
	for _, g := range promises {
		fmt.Fprintf(&b, "\n## %s\n\n| | promise | rdma-core | test |\n|---|---|---|---|\n", g.title)
		for i, r := range g.rows {
			fmt.Fprintf(&b, "| %d | %s | %s | `%s` |\n", n+i+1, r.what, r.rdmacore, r.test)
		}
		b.WriteString("\n")
		for i, r := range g.rows {
			fmt.Fprintf(&b, "%d. `%s`: ``%s`` becomes ``%s``\n", n+i+1, r.file, inline(r.old), inline(r.new))
		}
		n += len(g.rows)
	}
	golden.Compare(t, "../docs/verbs.md", b.String())
}

// inline shows a patch's text on one line.
func inline(s string) string {
	if s == "" {
		return "(nothing)"
	}
	return strings.Join(strings.Fields(s), " ")
}

// TestPromisesHold: every row names a test that exists, and its patch applies in one
// place.
func TestPromisesHold(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := ""
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests += string(b)
	}
	for _, g := range promises {
		for _, r := range g.rows {
			if !strings.Contains(tests, "\nfunc "+r.test+"(t *testing.T)") {
				t.Errorf("%s: there is no %s", r.what, r.test)
			}
			if _, err := r.apply(); err != nil {
				t.Errorf("%s: %v", r.what, err)
			}
		}
	}
}

// apply returns the patched file, by its name.
func (r promise) apply() (map[string][]byte, error) {
	return patch.Apply("..", patch.Edit{File: "virtrnic/" + r.file, Old: r.old, New: r.new})
}

// TestPatches runs each row's test with its patch and expects it to fail: a test that
// passes either way tests nothing. It takes minutes, so it wants MCASTLAB_PATCHES.
func TestPatches(t *testing.T) {
	which := os.Getenv("MCASTLAB_PATCHES")
	if which == "" {
		t.Skip("set MCASTLAB_PATCHES=all, or to a number or a range of docs/verbs.md")
	}
	from, to := 1, 1<<30
	if which != "all" {
		if k, err := fmt.Sscanf(which, "%d-%d", &from, &to); k < 1 {
			t.Fatalf("MCASTLAB_PATCHES=%s: %v", which, err)
		} else if k == 1 {
			to = from
		}
	}
	n := 0
	for _, g := range promises {
		for _, r := range g.rows {
			if n++; n >= from && n <= to {
				t.Run(fmt.Sprintf("%d %s", n, r.what), func(t *testing.T) { r.fails(t) })
			}
		}
	}
}

// fails runs the row's test over the patched source.
func (r promise) fails(t *testing.T) {
	files, err := r.apply()
	if err == nil {
		err = patch.Bites(t.TempDir(), "..", "virtrnic", r.test, files, time.Minute)
	}
	if err != nil {
		t.Errorf("under the patch of %s: %v", r.file, err)
	}
}
