// SPDX-License-Identifier: Apache-2.0

package rank

// requests are a rank's work requests that have not completed, by the numbers that their completions carry (WRID). These count from 1, so
// the latest are in a ring, which takes less memory and time than a map: a rank of HPL on 128 x 128 processes has 250 at a time.
// The zero value is empty.
type requests struct {
	// ring has number n at n modulo its length, which is 0 or a power of two. Invariant: it has those above before up to last, nil
	// where one has completed.
	ring         []*Request
	before, last uint64
	held         int // in the ring

	// older are those up to before: receives that wait long, such as a barrier's.
	older map[uint64]*Request
}

// ringMin is the length of the first ring.
const ringMin = 8

// add enters a request and returns its number.
func (q *requests) add(r *Request) uint64 {
	if q.last-q.before == uint64(len(q.ring)) {
		q.makeRoom()
	}
	q.last++
	*q.at(q.last) = r
	q.held++
	return q.last
}

// take removes a request and returns it. It returns nil if there is none of that number.
func (q *requests) take(number uint64) (r *Request) {
	switch {
	case number > q.last:
		return nil
	case number > q.before:
		at := q.at(number)
		if r = *at; r != nil {
			*at = nil
			q.held--
		}
	default:
		if r = q.older[number]; r != nil {
			delete(q.older, number)
		}
	}
	return r
}

// forget drops all requests. The numbering continues.
func (q *requests) forget() { *q = requests{before: q.last, last: q.last} }

func (q *requests) at(number uint64) **Request { return &q.ring[number&uint64(len(q.ring)-1)] }

// makeRoom gives the ring a free place: where requests have completed at its beginning, in a longer ring if more than half of it is
// used, or else by moving the older half.
func (q *requests) makeRoom() {
	for q.before < q.last && *q.at(q.before + 1) == nil {
		q.before++
	}
	switch n := uint64(len(q.ring)); {
	case q.last-q.before < n:
	case n == 0:
		q.ring = make([]*Request, ringMin)
	case 2*q.held > len(q.ring):
		long := requests{ring: make([]*Request, 2*n)}
		for i := q.before + 1; i <= q.last; i++ {
			*long.at(i) = *q.at(i)
		}
		q.ring = long.ring
	default:
		if q.older == nil {
			q.older = map[uint64]*Request{}
		}
		for q.last-q.before > n/2 {
			number := q.before + 1
			if r := q.take(number); r != nil {
				q.older[number] = r
			}
			q.before = number
		}
	}
}
