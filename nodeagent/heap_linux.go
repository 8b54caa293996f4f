package nodeagent

import (
	"runtime/debug"
	"time"
)

// giveBack returns to the machine what is free of the node's heap. By itself the Go runtime lets garbage grow to
// 4 MiB, and later to what was in use once more, before it collects any: in each of hundreds of processes.
func giveBack() { debug.FreeOSMemory() }

// restTime is how long after a run a node gives back what the run has used: the command has what it needs by
// then, and few begin another run so soon.
const restTime = 200 * time.Millisecond

// giveBackLater gives back at rest what a run has used. It costs some milliseconds of processor time, which a run,
// and one that follows at once, do not wait for.
func (a *agent) giveBackLater() {
	time.AfterFunc(restTime, func() {
		if !a.member.Load() {
			giveBack()
		}
	})
}
