package virtrnic

import "github.com/mcastlab/mcastlab/vtime"

// held is a queue pair that has something to send but, at its rate, not yet. Held queue
// pairs are no events and no timers: the instant of the first of them is when the
// port's next frame starts, and the driver comes then or later (rule R3).
type held struct {
	at vtime.Time
	q  *QP
}

// holding is a binary heap, the earliest first.
type holding []held

func (h holding) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].q.index < h[j].q.index
}

func (h *holding) push(v held) {
	*h = append(*h, v)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s.less(i, up) {
			return
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *holding) pop() held {
	s := *h
	first := s[0]
	n := len(s) - 1
	s[0], s[n] = s[n], held{}
	s = s[:n]
	*h = s
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			return first
		}
		if c+1 < n && s.less(c+1, c) {
			c++
		}
		if !s.less(c, i) {
			return first
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
}

// hold puts a paced queue pair aside if its next packet may not start at now. The queue
// pair counts as queued either way.
func (n *NIC) hold(now vtime.Time, q *QP) bool {
	at := q.cc.notBefore(now)
	if at <= now {
		return false
	}
	n.tx.held.push(held{at, q})
	return true
}

// unhold puts the queue pairs whose time has come by now into their rounds.
func (n *NIC) unhold(now vtime.Time) {
	for len(n.tx.held) > 0 && n.tx.held[0].at <= now {
		q := n.tx.held.pop().q
		switch {
		case !q.sq.sendable(q):
			q.queued = false
		case q.cc != nil && n.hold(now, q): // the rate has changed meanwhile
		default:
			n.ripe(now, q.prio)
			n.tx.round[q.prio].push(q)
		}
	}
}

// Rate returns the rate in bits per second on the wire that congestion control allows
// the queue pair, or 0 without congestion control.
func (q *QP) Rate(now vtime.Time) uint64 {
	if q.cc == nil {
		return 0
	}
	q.cc.catchUp(now)
	return q.cc.rate
}
