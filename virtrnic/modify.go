// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// transition is a row of the state table of ibv_modify_qp.
type transition struct {
	from, to           QPState
	required, optional AttrMask
}

var rcTransitions = []transition{
	{StateReset, StateInit, AttrPKeyIndex | AttrPort | AttrAccessFlags, 0},
	{StateInit, StateInit, 0, AttrPKeyIndex | AttrPort | AttrAccessFlags},
	{StateInit, StateRTR,
		AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer,
		AttrAccessFlags | AttrPKeyIndex},
	{StateRTR, StateRTS,
		AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrSQPSN | AttrMaxQPRdAtomic,
		AttrCurState | AttrAccessFlags | AttrMinRNRTimer},
	{StateRTS, StateRTS, 0, AttrCurState | AttrAccessFlags | AttrMinRNRTimer},
	{StateRTS, StateSQD, 0, AttrEnSQDAsyncNotify},
	{StateSQD, StateRTS, 0, AttrCurState | AttrAccessFlags | AttrMinRNRTimer},
	{StateSQD, StateSQD, 0,
		AttrPort | AttrAV | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxQPRdAtomic |
			AttrMaxDestRdAtomic | AttrAccessFlags | AttrPKeyIndex | AttrMinRNRTimer},
}

var ucTransitions = []transition{
	{StateReset, StateInit, AttrPKeyIndex | AttrPort | AttrAccessFlags, 0},
	{StateInit, StateInit, 0, AttrPKeyIndex | AttrPort | AttrAccessFlags},
	{StateInit, StateRTR, AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN, AttrAccessFlags | AttrPKeyIndex},
	{StateRTR, StateRTS, AttrSQPSN, AttrCurState | AttrAccessFlags},
	{StateRTS, StateRTS, 0, AttrCurState | AttrAccessFlags},
	{StateRTS, StateSQD, 0, AttrEnSQDAsyncNotify},
	{StateSQD, StateRTS, 0, AttrCurState | AttrAccessFlags},
	{StateSQD, StateSQD, 0, AttrPort | AttrAV | AttrAccessFlags | AttrPKeyIndex},
	{StateSQE, StateRTS, 0, AttrCurState | AttrAccessFlags},
}

var udTransitions = []transition{
	{StateReset, StateInit, AttrPKeyIndex | AttrPort | AttrQKey, 0},
	{StateInit, StateInit, 0, AttrPKeyIndex | AttrPort | AttrQKey},
	{StateInit, StateRTR, 0, AttrPKeyIndex | AttrQKey},
	{StateRTR, StateRTS, AttrSQPSN, AttrCurState | AttrQKey},
	{StateRTS, StateRTS, 0, AttrCurState | AttrQKey},
	{StateRTS, StateSQD, 0, AttrEnSQDAsyncNotify},
	{StateSQD, StateRTS, 0, AttrCurState | AttrQKey},
	{StateSQD, StateSQD, 0, AttrPKeyIndex | AttrQKey},
	{StateSQE, StateRTS, 0, AttrCurState | AttrQKey},
}

// transitionsOf returns the state table of a service.
func transitionsOf(s wire.Service) []transition {
	switch s {
	case wire.UC:
		return ucTransitions
	case wire.UD:
		return udTransitions
	}
	return rcTransitions
}

// ModifyQP changes attributes and state as ibv_modify_qp does. Every state may go to
// RESET, and every one but RESET to ERR, with AttrState alone. A missing or superfluous
// attribute changes nothing and returns ErrInvalid.
func (n *NIC) ModifyQP(now vtime.Time, q *QP, a QPAttr, mask AttrMask) error {
	to := q.state
	if mask&AttrState != 0 {
		to = a.State
	}
	given := mask &^ AttrState
	if err := q.checkModify(to, &a, given); err != nil {
		return err
	}
	n.settleBefore(now)
	switch {
	case to == StateReset:
		q.becomeReset(now)
	case to == StateErr:
		q.becomeErr(now)
	default:
		q.apply(&a, given)
		q.become(now, to, given)
	}
	n.start(now)
	return nil
}

// checkModify returns why the verb refuses a change, or nil.
func (q *QP) checkModify(to QPState, a *QPAttr, given AttrMask) error {
	if given&AttrCurState != 0 && a.CurState != q.state {
		return fmt.Errorf("modify queue pair %d: it is in %v, not %v: %w", q.num, q.state, a.CurState, ErrState)
	}
	if to == StateReset || to == StateErr && q.state != StateReset {
		if given&^AttrCurState != 0 {
			return fmt.Errorf("modify queue pair %d to %v: no attribute but the state is allowed: %w", q.num, to, ErrInvalid)
		}
		return nil
	}
	t := findTransition(q.service, q.state, to)
	if t == nil {
		return fmt.Errorf("modify queue pair %d: no way from %v to %v: %w", q.num, q.state, to, ErrState)
	}
	if miss := t.required &^ given; miss != 0 {
		return fmt.Errorf("modify queue pair %d to %v: attributes %#x missing: %w", q.num, to, uint32(miss), ErrInvalid)
	}
	if extra := given &^ (t.required | t.optional); extra != 0 {
		return fmt.Errorf("modify queue pair %d to %v: attributes %#x not allowed: %w", q.num, to, uint32(extra), ErrInvalid)
	}
	if err := checkAttr(a, given); err != nil {
		return fmt.Errorf("modify queue pair %d to %v: %w", q.num, to, err)
	}
	return nil
}

// become enters a state, or has changed attributes take effect in the one that it is in.
func (q *QP) become(now vtime.Time, to QPState, given AttrMask) {
	switch {
	case to == StateInit:
		q.becomeInit(now)
	case to == StateRTR:
		q.becomeRTR(now)
	case to == StateRTS:
		q.becomeRTS(now)
	case to == StateSQD && q.state != StateSQD:
		q.becomeSQD(now)
	case given&AttrAV != 0: // SQD to SQD with a new path
		q.prio = q.nic.priority(q.attr.AV.TrafficClass)
		q.nic.address(&q.env, q)
		q.nic.meets(q.attr.AV.DGID)
		q.nic.control(q)
	}
	if given&AttrMaxDestRdAtomic != 0 {
		q.rq.past.resize(int(q.attr.MaxDestRdAtomic))
	}
}

func findTransition(s wire.Service, from, to QPState) *transition {
	table := transitionsOf(s)
	for i := range table {
		if t := &table[i]; t.from == from && t.to == to {
			return t
		}
	}
	return nil
}

func checkAttr(a *QPAttr, given AttrMask) error {
	switch {
	case given&AttrPathMTU != 0 && a.PathMTU != 256 && a.PathMTU != 512 && a.PathMTU != 1024 && a.PathMTU != 2048 && a.PathMTU != 4096:
		return fmt.Errorf("path MTU %d is not 256, 512, 1024, 2048 or 4096: %w", a.PathMTU, ErrInvalid)
	case given&AttrRetryCnt != 0 && a.RetryCnt > 7:
		return fmt.Errorf("retry count %d is beyond 7: %w", a.RetryCnt, ErrInvalid)
	case given&AttrRNRRetry != 0 && a.RNRRetry > 7:
		return fmt.Errorf("RNR retry count %d is beyond 7: %w", a.RNRRetry, ErrInvalid)
	case given&AttrMinRNRTimer != 0 && a.MinRNRTimer > 31:
		return fmt.Errorf("RNR timer code %d is beyond 31: %w", a.MinRNRTimer, ErrInvalid)
	case given&AttrTimeout != 0 && a.Timeout > 31:
		return fmt.Errorf("timeout code %d is beyond 31: %w", a.Timeout, ErrInvalid)
	case given&AttrMaxQPRdAtomic != 0 && a.MaxQPRdAtomic > MaxRdAtomic, given&AttrMaxDestRdAtomic != 0 && a.MaxDestRdAtomic > MaxRdAtomic:
		return fmt.Errorf("more than %d READs and atomics under way: %w", MaxRdAtomic, ErrInvalid)
	case given&AttrDestQPN != 0 && (a.DestQPN == 0 || a.DestQPN > wire.QPNMask):
		return fmt.Errorf("destination queue pair %d is not a queue pair number: %w", a.DestQPN, ErrInvalid)
	}
	return nil
}

// apply takes over the attributes named by mask; PSNs are cut to 24 bits.
func (q *QP) apply(a *QPAttr, mask AttrMask) {
	d := &q.attr
	set(&d.EnSQDAsync, a.EnSQDAsync, mask&AttrEnSQDAsyncNotify)
	set(&d.Access, a.Access, mask&AttrAccessFlags)
	set(&d.PKeyIndex, a.PKeyIndex, mask&AttrPKeyIndex)
	set(&d.Port, a.Port, mask&AttrPort)
	set(&d.AV, a.AV, mask&AttrAV)
	set(&d.PathMTU, a.PathMTU, mask&AttrPathMTU)
	set(&d.Timeout, a.Timeout, mask&AttrTimeout)
	set(&d.RetryCnt, a.RetryCnt, mask&AttrRetryCnt)
	set(&d.RNRRetry, a.RNRRetry, mask&AttrRNRRetry)
	set(&d.RQPSN, a.RQPSN&wire.PSNMask, mask&AttrRQPSN)
	set(&d.SQPSN, a.SQPSN&wire.PSNMask, mask&AttrSQPSN)
	set(&d.MinRNRTimer, a.MinRNRTimer, mask&AttrMinRNRTimer)
	set(&d.MaxQPRdAtomic, a.MaxQPRdAtomic, mask&AttrMaxQPRdAtomic)
	set(&d.MaxDestRdAtomic, a.MaxDestRdAtomic, mask&AttrMaxDestRdAtomic)
	set(&d.DestQPN, a.DestQPN, mask&AttrDestQPN)
	set(&d.QKey, a.QKey, mask&AttrQKey)
}

// set makes *d v if the attribute was named.
func set[T any](d *T, v T, named AttrMask) {
	if named != 0 {
		*d = v
	}
}

// QueryQP returns the attributes and the state.
func (n *NIC) QueryQP(q *QP) QPAttr {
	a := q.attr
	a.SQPSN, a.RQPSN = q.SQPSN(), q.RQPSN()
	return a
}

// PSNSource selects which of a queue pair's two PSN counters SyncPSN copies.
type PSNSource uint8

// Directions of SyncPSN.
const (
	SendFromRecv PSNSource = iota // the new source: sqPSN = rqPSN
	RecvFromSend                  // the old source: rqPSN = sqPSN
)

// SyncPSN makes one PSN counter follow the other when the source of a group changes
// (Cepheus §III-E, CEP-40). It is an extension of this NIC, not a verb, and is legal
// only in RTS with an empty send queue, so ModifyQP keeps the verbs' rules.
func (n *NIC) SyncPSN(now vtime.Time, q *QP, from PSNSource) error {
	if q.state != StateRTS || q.service != wire.RC {
		return fmt.Errorf("synchronise PSN of queue pair %d in %v: %w", q.num, q.state, ErrState)
	}
	if q.sq.wqes.Len() > 0 {
		return fmt.Errorf("synchronise PSN of queue pair %d: %w", q.num, ErrQueue)
	}
	n.settleBefore(now)
	if q.order != nil {
		q.order.forget(now, n)
	}
	if from == SendFromRecv {
		q.sq.begin(q.rq.epsn)
	} else {
		q.rq.epsn = q.sq.psn(q.sq.end)
		q.rq.nakSent = false
		q.rq.past = nil
	}
	return nil
}

// BringUp takes a reliable queue pair from RESET to RTS, with the attributes of all three
// steps in one. If a step is refused, the queue pair stays in the state before that step.
func (n *NIC) BringUp(now vtime.Time, q *QP, a QPAttr) error {
	for _, step := range [...]struct {
		to   QPState
		mask AttrMask
	}{
		{StateInit, AttrPKeyIndex | AttrPort | AttrAccessFlags},
		{StateRTR, AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer},
		{StateRTS, AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrSQPSN | AttrMaxQPRdAtomic},
	} {
		a.State = step.to
		if err := n.ModifyQP(now, q, a, step.mask|AttrState); err != nil {
			return err
		}
	}
	return nil
}
