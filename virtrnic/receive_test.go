// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"fmt"
	"testing"
)

// TestReceiveBeyondRegion: a buffer may be longer than its region, in one piece or in several. Only the bytes that arrive
// need memory: all that fit are delivered, and the first that does not ends the receive.
func TestReceiveBeyondRegion(t *testing.T) {
	const size = 3000
	for _, service := range []QPType{TypeRC, TypeUC} {
		for _, irn := range []bool{false, true} {
			for _, pieces := range []int{1, 2} {
				for _, n := range []int{0, 1, 1024, size, size + 1, size + 2000} {
					if service == TypeUC && irn {
						continue
					}
					name := fmt.Sprintf("type %v/irn=%v/%d pieces/%d bytes", service, irn, pieces, n)
					p := newPair(t, pairOptions{timeout: 10, retry: 1, rnr: 6, typ: service})
					src, sm := p.region(0, size+2000, 3)
					dst, dm := p.region(1, size, 0)
					w := RecvWR{WRID: 2, SGL: []SGE{{Addr: dm.Addr(), Length: size + 5000, LKey: dm.LKey()}}}
					if pieces == 2 {
						w.SGL = []SGE{{Addr: dm.Addr(), Length: 100, LKey: dm.LKey()}, {Addr: dm.Addr() + 100, Length: size + 5000, LKey: dm.LKey()}}
					}
					p.recv(1, w)
					p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, n)})
					p.run()
					got := p.completions(1)
					if n <= size {
						if len(got) != 1 || got[0].Status != WCSuccess || got[0].ByteLen != uint32(n) || !bytes.Equal(dst[:n], src[:n]) {
							t.Errorf("%s: %+v, and the bytes are right: %v", name, got, bytes.Equal(dst[:n], src[:n]))
						}
						continue
					}
					if len(got) != 1 || got[0].Status != WCLocProtErr {
						t.Errorf("%s: %+v, want %v", name, got, WCLocProtErr)
					}
					if sent := p.completions(0); service == TypeRC && (len(sent) != 1 || sent[0].Status != WCRemOpErr) {
						t.Errorf("%s: the sender has %+v, want %v", name, sent, WCRemOpErr)
					}
				}
			}
		}
	}
}
