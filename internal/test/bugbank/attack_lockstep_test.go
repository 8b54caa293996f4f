// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackLockstep are bugs that the comparison of runs in virtual time with the simulation has found.
var attackLockstep = []pitfall{
	{
		what: "The same bytes are not the same digest in another representation",
		seen: "a fallback's probes, of one byte that is zero: the simulator keeps no block of zeros, a parsed frame has one",
		bugs: []bug{{
			wrong: "Zeros change the digest of a frame only if a block holds them",
			edits: edit("core/wire/frame.go", "if h := f.block.Hash(); h != 0 {", "if h := f.block.Hash(); true {"),
			test:  "core/wire TestFrameBuildParse",
		}},
	},
	{
		what: "What is complete is judged by those who have something to do, and not by what is on its way to them",
		seen: "captures that began during a run: all ranks waited in a barrier, and its reply was still to come",
		bugs: []bug{{
			wrong: "A message of the out-of-band channel is no event: frames that it sets off come after all frames have been written",
			edits: edit("drivers/lockstep/coordinator_linux.go", "return min(c.channel.Next(), c.faults.Next(), ", "return min(c.faults.Next(), "),
			test:  "drivers/lockstep TestHorizon",
		}},
	},
}
