// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// String prints the frame as one line, the same in traces and golden transcripts:
//
//	10.0.0.1>10.254.0.1 RC_WRITE_FIRST qp=1 psn=7 A va=0x1000 rkey=0x101 dma=8192 len=4096
func (f *Frame) String() string {
	switch f.Kind() {
	case KindPFC:
		return formatPFC(f.PFC())
	case KindMRP:
		return f.addresses() + " " + f.formatMRP()
	case KindRoCE:
		return f.addresses() + " " + f.formatRoCE()
	}
	if f.IsMembership() {
		return f.formatMembership()
	}
	return fmt.Sprintf("other len=%d", f.Len())
}

func (f *Frame) addresses() string {
	return AddrIn(f.IPv6(), f.SrcIP()).String() + ">" + AddrIn(f.IPv6(), f.DstIP()).String()
}

func (f *Frame) formatRoCE() string {
	op := f.OpCode()
	i := op.Info()
	s := fmt.Sprintf("%v qp=%d psn=%v", op, f.DestQP(), f.PSN())
	if f.AckReq() {
		s += " A"
	}
	if f.Selective() {
		s += " S"
	}
	if i.AETH {
		a := f.AETH()
		s += fmt.Sprintf(" %v msn=%d", a.Syndrome, a.MSN)
		if a.Syndrome.IsRNR() {
			s += fmt.Sprintf(" timer=%d", a.Syndrome.RNRCode())
		}
	}
	if k, ok := f.SACK(); ok {
		s += fmt.Sprintf(" sack=%v:%x", k.PSN, k.Lo)
		if k.Hi != 0 {
			s += fmt.Sprintf("+%x", k.Hi)
		}
	}
	if i.DETH {
		h, _, _ := ParseDETH(f.ext())
		s += fmt.Sprintf(" qkey=%#x srcqp=%d", h.QKey, h.SrcQP)
	}
	if i.RETH {
		h := f.RETH()
		s += fmt.Sprintf(" va=%#x rkey=%#x dma=%d", h.VA, h.RKey, h.DMALen)
	}
	if i.Atomic {
		h, _, _ := ParseAtomicETH(f.ext())
		s += fmt.Sprintf(" va=%#x rkey=%#x swapadd=%d compare=%d", h.VA, h.RKey, h.SwapAdd, h.Compare)
	}
	if i.Imm {
		s += fmt.Sprintf(" imm=%#x", uint32(f.Imm()))
	}
	if i.Flags&OpPayload != 0 {
		s += fmt.Sprintf(" len=%d", f.pay)
	}
	if f.ECN() == ECNCE {
		s += " CE"
	}
	return s
}

func (f *Frame) formatMembership() string {
	m, _, err := f.Membership(nil)
	s := "IGMP"
	if m.IPv6 {
		s = "MLD"
	}
	switch {
	case err != nil:
		return s + " malformed"
	case m.Query && m.Group != 0:
		return s + " query " + AddrIn(m.IPv6, m.Group).String()
	case m.Query:
		return s + " query"
	}
	for r, ok := m.Next(); ok; r, ok = m.Next() {
		what := " other "
		if r.Joins() {
			what = " join "
		} else if r.Leaves() {
			what = " leave "
		}
		s += what + AddrIn(m.IPv6, r.Group).String()
	}
	return s
}

func (f *Frame) formatMRP() string {
	var p MRPPacket
	err := ErrShort
	if b := f.Payload(); b != nil {
		p, err = ParseMRP(b.Bytes())
	}
	if err != nil {
		return "MRP malformed"
	}
	s := fmt.Sprintf("MRP%v %d/%d leaderqp=%d", p.Flags, p.Seq+1, p.Total, p.LeaderQPN)
	if p.Attempt > 0 {
		s += fmt.Sprintf(" attempt=%d", p.Attempt)
	}
	for i := range p.Len() {
		r := p.Record(i)
		s += fmt.Sprintf(" {%v", AddrOf(r.IP))
		if r.Flags != 0 {
			s += fmt.Sprintf(" flags=%d", r.Flags)
		}
		s += fmt.Sprintf(" qp=%d", r.QPN)
		if p.Flags&MRPMRUpdate != 0 {
			s += fmt.Sprintf(" va=%#x rkey=%#x", p.Region(i).VA, p.Region(i).RKey)
		}
		s += "}"
	}
	return s
}

// String names the flags, each with a leading blank.
func (m MRPFlags) String() (s string) {
	if m&^(MRPConfirm|MRPReduce) == 0 {
		s = " register"
	}
	for _, x := range []struct {
		f MRPFlags
		s string
	}{
		{MRPDelete, " delete"},
		{MRPMRUpdate, " mr-update"},
		{MRPReduce, " reduce"},
		{MRPError, " error"},
		{MRPActivate, " activate"},
		{MRPConfirm, " confirm"},
	} {
		if m&x.f != 0 {
			s += x.s
		}
	}
	return s
}

func formatPFC(p PFC) string {
	s := "PFC"
	for i, q := range p.Quanta {
		if p.Enable>>i&1 != 0 {
			s += fmt.Sprintf(" %d:%d", i, q)
		}
	}
	return s
}
