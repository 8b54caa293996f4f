// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestSameSpread: a lab has the digest of its simulation on any number of servers, under a fault, too.
func TestSameSpread(t *testing.T) {
	t.Parallel()
	for servers := 2; servers <= 4; servers++ {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			b := newBenchOn(t, benchLab+"nics: {retries: 2, timeout: 67us}\nfaults: [{at: 30us, in: run, loss: {links: leaf*-spine*, rate: 0.02}}]\n", servers)
			b.start(nil)
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			b.sameAs(nil, true)
		})
	}
}

// TestServerLies: a server's reports are accepted only for its own nodes and links, and a server that is lost is
// named.
func TestServerLies(t *testing.T) {
	for want, lie := range map[string]func(b []byte) []byte{
		"is no end of a link that leaves it":       func(b []byte) []byte { return appendAnnounced(b[:len(b)-4], []announced{{id: 1 << 20}}) },
		"tells of a node that has no grant":        func(b []byte) []byte { b[1] ^= 1; return b },
		"a message that this version does not":     func(b []byte) []byte { return b[:len(b)-5] },
		"a message of kind":                        func(b []byte) []byte { b[0] = 'X'; return b },
		"its part of the run has ended":            func([]byte) []byte { return nil },
		"the relay has no room":                    func([]byte) []byte { return append([]byte{sayError}, "the relay has no room"...) },
		"it waits for node 16777215, which has no": func([]byte) []byte { return []byte{sayWaits, 0xff, 0xff, 0xff, 0} },
	} {
		b := newBenchOn(t, benchLab, 2)
		b.start(nil)
		b.c.Begin(b, nil, nil)
		m := b.c.far.servers[1]
		heard, told := m.said, make(chan []byte, 16)
		m.said = told
		go func() {
			for a := range heard {
				if a = lie(a); a == nil {
					m.err = net.ErrClosed
					break
				}
				told <- a
			}
			close(told)
			for range heard {
				continue
			}
		}()
		err := b.tell(func(int) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "server m1, at "+vtime.Time(0).String()) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
