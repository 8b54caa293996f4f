package virtswitch

import "github.com/mcastlab/mcastlab/vtime"

// MulticastEntries returns how many entries the plain IP multicast table has.
func (s *Switch) MulticastEntries() int { return len(s.multicast) }

// ArmedTimers returns how many timers will fire if nothing comes in between, but for that of
// deleted groups, whose McstIDs rest for a while after every run.
func (s *Switch) ArmedTimers() int {
	n := s.timers.Armed()
	if s.timers.At(timerTombstone) != vtime.Never {
		n--
	}
	return n
}

// BufferUsed returns the bytes of the packet buffer that frames are charged to.
func (s *Switch) BufferUsed() (bytes int) {
	for p := range s.in {
		for _, b := range s.in[p].bytes {
			bytes += int(b)
		}
	}
	return bytes
}
