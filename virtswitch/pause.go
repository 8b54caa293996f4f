// SPDX-License-Identifier: Apache-2.0

package virtswitch

import "github.com/mcastlab/mcastlab/core/vtime"

// obeyedPause holds the classes that the neighbour of one port has paused (802.1Qbb). It is a value:
// its methods take pause frames and return the classes that resume.
type obeyedPause struct {
	// stopped has a bit for each class that the neighbour has stopped.
	stopped uint8

	// until is, by class, when the last pause runs out. It is valid only while the class is
	// stopped. Invariant: a stopped class resumes at that instant at the latest.
	until [8]vtime.Time
}

// stop obeys an XOFF for one class, which replaces an earlier one.
func (p *obeyedPause) stop(class uint8, until vtime.Time) {
	p.stopped |= 1 << class
	p.until[class] = until
}

// release resumes classes and returns those of them that were stopped.
func (p *obeyedPause) release(classes uint8) (freed uint8) {
	freed = p.stopped & classes
	p.stopped &^= classes
	return freed
}

// expired returns the classes that are stopped although their pause has run out by now.
func (p *obeyedPause) expired(now vtime.Time) (classes uint8) {
	for i, t := range p.until {
		if p.stopped>>i&1 != 0 && t <= now {
			classes |= 1 << i
		}
	}
	return classes
}

// next returns when the first pause runs out, or vtime.Never.
func (p *obeyedPause) next() vtime.Time {
	first := vtime.Never
	for i, t := range p.until {
		if p.stopped>>i&1 != 0 {
			first = min(first, t)
		}
	}
	return first
}
