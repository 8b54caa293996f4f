// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"runtime/debug"
	"time"
)

// giveBack returns the free part of the node's heap to the server. The Go runtime lets garbage grow to 4 MiB,
// and later to the size of the used heap, before it collects any: in each of hundreds of processes.
func giveBack() { debug.FreeOSMemory() }

// restTime is the time after a run at which a node gives back the run's memory: the command has its results
// by then, and few begin another run so soon.
const restTime = 200 * time.Millisecond

// giveBackLater gives back a run's memory when the node is idle. It costs some milliseconds of processor time,
// which a run, and one that follows at once, do not wait for.
func (a *agent) giveBackLater() {
	time.AfterFunc(restTime, func() {
		if !a.member.Load() {
			giveBack()
		}
	})
}
