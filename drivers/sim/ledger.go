// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Entry is a frame that has reached the end of a link: when, and the link's digest with it. Two runs
// are the same on a link up to the first entry that differs.
type Entry struct {
	At     vtime.Time
	Digest uint64
}

// ledgerMax is the most entries that one ledger has. Later frames are not entered. A node sends its
// ledger in one message, 16 bytes an entry.
const ledgerMax = 1 << 19

// ledger has the entries of all links of a Net, by port.
type ledger struct {
	links [][]Entry
	room  int
}

func newLedger(ports int) *ledger { return &ledger{links: make([][]Entry, ports), room: ledgerMax} }

// account counts a frame that has reached the end of a link.
func (n *Net) account(l *machine.Link, f *wire.Frame, lost bool) {
	l.Account(n.now, f, lost)
	if n.ledger != nil && n.ledger.room > 0 {
		n.ledger.room--
		id := n.ports[l.ID()].id
		n.ledger.links[id] = append(n.ledger.links[id], Entry{n.now, l.Digest})
	}
}

// Ledger returns the frames that have reached the ends of links, by port, if Config.Ledger is set.
// whole reports whether it has all of them.
func (n *Net) Ledger() (links [][]Entry, whole bool) {
	if n.ledger == nil {
		return nil, false
	}
	return n.ledger.links, n.ledger.room > 0
}
