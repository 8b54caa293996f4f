// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// finisher is an Algorithm in which external hosts can take part.
type finisher interface {
	// lastPSN returns the PSN of the last packet of the message, which this rank has sent, or received, as the external
	// rank to counts it: the one that it has to acknowledge, or as the root to be acknowledged.
	lastPSN(to int) (psn uint32, err error)
}

// Lack is an external host that may lack a message, or as the root its acknowledgement.
type Lack struct {
	Host string `json:"host"`
	Why  string `json:"why"` // as a part of a sentence of which the host is the subject
}

// Finish blocks after Run until the external hosts have the message, and an external root its last acknowledgement, and
// returns those for which that is not known. All ranks call it with the same key, another one for each message. last
// announces that queue pairs and groups are destroyed afterwards: Finish then waits until a root can no longer repeat.
func Finish(a Algorithm, r *rank.Rank, root int, key string, last bool) (lacks []Lack, err error) {
	speaker := root
	if r.External(root) {
		speaker = r.First()
	}
	var f *rankhost.Finish // of the speaker alone
	if r.ID() == speaker {
		f = &rankhost.Finish{PSNs: map[string]uint32{}, Last: last}
	}
	for i := range r.Size() {
		if f == nil || !r.External(i) {
			continue
		}
		if f.PSNs[r.NameOf(i)], err = a.(finisher).lastPSN(i); err != nil {
			return nil, err
		}
	}
	for _, l := range rankrun.Of(r).Finish(key, f) {
		lacks = append(lacks, Lack(l))
	}
	return lacks, nil
}

// lastOf returns the PSN of the last packet of the group's message: of its source, or of a receiver that has all.
func lastOf(r *rank.Rank, g *rank.Group) uint32 {
	if g.Source() == r.ID() {
		return rankrun.OfGroup(g).Sent()
	}
	return rankrun.OfGroup(g).Received()
}

// lastPSN implements finisher.
func (c *cepheus) lastPSN(int) (uint32, error) { return lastOf(c.r, c.g), nil }

// lastPSN implements finisher.
func (w *writing) lastPSN(int) (uint32, error) { return lastOf(w.r, w.g), nil }
