package virtrnic

import "github.com/mcastlab/mcastlab/core/wire"

// Guest is memory of a program outside the NIC's process, which the NIC itself neither reads nor
// writes: that may take long, and fail. Image is read in its place, so the driver brings up to
// date what a request is going to read before it hands the request to the NIC. Put takes what
// the NIC writes, in order; b is valid during the call.
type Guest struct {
	Image []byte
	Put   func(off uint64, b []byte)
}

// Size implements Memory.
func (m *Guest) Size() uint64 { return uint64(len(m.Image)) }

func (m *Guest) load(p *wire.Pool, f *wire.Frame, off uint64, n int) {
	Bytes(m.Image).load(p, f, off, n)
}

func (m *Guest) store(f *wire.Frame, off uint64) { m.write(f.PayloadBytes(), off, f.PayloadLen()) }

func (m *Guest) read(b []byte, off uint64) { copy(b, m.Image[off:]) }

func (m *Guest) write(b []byte, off uint64, n int) {
	if b == nil {
		b = make([]byte, n)
	}
	m.Put(off, b)
}
