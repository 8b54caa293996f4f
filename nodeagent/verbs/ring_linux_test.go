// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// FuzzRing: a ring of receives may hold anything, in its header, too. The number of entries that the NIC takes is
// bounded, and no entry is taken twice.
func FuzzRing(f *testing.F) {
	const entries = 4
	good := make([]byte, ringBytes(entries, recvLen))
	good[ringHead] = 3
	f.Add(good)
	f.Add(append([]byte{5}, good[1:]...))
	nic := virtrnic.New(virtrnic.Config{IP: 1, Port: new(machine.Port), Pool: &wire.Pool{}, Keys: prng.New(1)})
	pd := nic.AllocPD()
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := make([]byte, ringBytes(entries, recvLen))
		copy(mem, b)
		s, err := nic.CreateSRQ(pd, entries, 3)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := nic.DestroySRQ(s); err != nil {
				t.Error(err)
			}
		}()
		r := receives{ring: ring{mem, entries, recvLen}}
		want := r.waiting(0)
		err = r.take(vtime.Time(1), nic, nil, s)
		posted, _ := nic.QuerySRQ(s)
		if uint64(posted) != r.taken || r.taken > want {
			t.Fatalf("%d are posted, %d taken, of %d", posted, r.taken, want)
		}
		if err == nil && r.taken != want {
			t.Fatalf("%d are taken of %d", r.taken, want)
		}
		again := r.take(vtime.Time(2), nic, nil, s)
		if r.taken != uint64(posted) || (again == nil) != (err == nil) {
			t.Fatalf("%d are taken again: %v, before: %v", r.taken-uint64(posted), again, err)
		}
	})
}
