// SPDX-License-Identifier: Apache-2.0

package virtrnic

import "testing"

// TestReadRightTakenAway: a queue pair that loses the right to be read ends a READ under way: its peer
// gets a remote access error.
func TestReadRightTakenAway(t *testing.T) {
	p := newPair(t, readable)
	_, sm := p.region(1, 20*1024, 7)
	_, dm := p.region(0, 20*1024, 0)
	p.post(0, read(1, dm, sm, 20*1024))
	q := p.qp[1]
	for (q.rq.out.Len() == 0 || q.rq.out.At(0).at < 3) && p.net.Step() {
	}
	if err := p.nic[1].ModifyQP(p.net.Now, q, QPAttr{State: StateRTS, Access: AccessRemoteWrite}, AttrState|AttrAccessFlags); err != nil {
		t.Fatal(err)
	}
	p.run()
	if q.State() != StateErr {
		t.Errorf("the READ went on: the state is %v", q.State())
	}
	p.want(0, WC{WRID: 1, Status: WCRemAccessErr})
}
