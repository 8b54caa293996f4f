// SPDX-License-Identifier: Apache-2.0

package lab

// checkRuntime verifies how lab time runs in containers.
func (c *checking) checkRuntime() {
	r := &c.l.Runtime
	c.checkSecond("runtime.channel-delay", r.Channel)
	if r.Clock == clockAuto {
		r.Clock = ClockLockstep
		if len(c.l.Externals()) > 0 || r.Dilation != 0 {
			r.Clock = ClockDilated
		}
	}
	if r.Clock != ClockLockstep {
		return
	}
	if r.Channel <= 0 {
		c.failf("runtime.channel-delay", "runtime.channel-delay must be above 0 with clock: lockstep: nodes advance by themselves as far as the shortest delays allow")
	}
	if r.Dilation != 0 {
		c.failf("runtime.dilation", "runtime.dilation slows the wall clock down, which clock: lockstep does not follow: leave one of them out")
	}
	if names := c.l.Externals(); len(names) > 0 {
		c.failf("runtime.clock", "clock: lockstep does not go with external host %s, which lives in wall time: leave the clock out", names[0])
	}
}
