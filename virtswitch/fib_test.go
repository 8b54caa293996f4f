// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/mcastlab/mcastlab/core/wire"
)

// TestWays: a packet's lookup in the forwarding table (next) leads to a port that the tables themselves (lookup) allow, the
// one that the hash of its flow picks among them, in random tables with sets of neighbouring and of other ports, empty sets,
// attached hosts, and blocks without a route.
func TestWays(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	var pool wire.Pool
	f := pool.Get()
	kinds := map[way]int{}
	for round := range 2000 {
		var fib FIB
		for range 1 + r.IntN(6) {
			var set []uint16
			for p := range uint16(PortsMax) {
				if r.IntN(1+r.IntN(40)) == 0 && len(set) < 9 || len(set) > 0 && int(set[len(set)-1]) == int(p)-1 && r.IntN(3) > 0 {
					set = append(set, p)
				}
			}
			if r.IntN(8) == 0 {
				set = nil // all of its ports are without a carrier
			}
			fib.Sets = append(fib.Sets, set)
		}
		for b := range 1 + r.IntN(30) {
			switch r.IntN(4) {
			case 0:
				fib.SetHost(10<<24|uint32(b)<<8|uint32(r.IntN(256)), r.IntN(PortsMax))
			case 1:
			default:
				fib.SetRoute(b, r.IntN(len(fib.Sets)))
			}
		}
		fib.index()
		for _, w := range fib.ways {
			kinds[w&wayLocal]++
		}
		for range 40 {
			dst, seed := 10<<24|uint32(r.IntN(32))<<8|uint32(r.IntN(256)), r.Uint32()
			if r.IntN(10) == 0 {
				dst = r.Uint32()
			}
			e := wire.NewEnvelope(wire.Flow{Src: r.Uint32(), Dst: dst, SrcPort: uint16(r.Uint32()), DstPort: wire.PortRoCEv2, TTL: 64})
			f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault})
			want, set := fib.lookup(dst)
			if len(set) > 0 {
				want = int(set[ecmp(f, seed, len(set))])
			}
			if got := fib.next(f, dst, seed); got != want {
				t.Fatalf("round %d: %x goes to port %d, want %d (%v)", round, dst, got, want, set)
			}
		}
	}
	for _, kind := range []way{wayNone, wayPorts, waySet, wayLocal} {
		if kinds[kind] < 100 {
			t.Errorf("only %d blocks were of kind %d", kinds[kind], kind>>30)
		}
	}
}

// TestHotPorts: the fields that a waiting packet needs of its egress, and of the account of its ingress, is one cache
// line each.
func TestHotPorts(t *testing.T) {
	if e, i := unsafe.Sizeof(egress{}), unsafe.Sizeof(ingress{}); e != 64 || i != 64 {
		t.Errorf("an egress has %d bytes and an ingress %d, want 64 each", e, i)
	}
}
