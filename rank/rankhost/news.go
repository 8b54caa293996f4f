// SPDX-License-Identifier: Apache-2.0

package rankhost

import (
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// News counts the events that may end the wait of a host's tasks: completions and asynchronous events of its NIC, and
// changes of its registration agent. It only grows.
//
// # How a waiting task wakes
//
// Cores make no calls, so a task that waits cannot leave a callback with them. It takes the completions in the queue,
// checks its condition, and parks (Host.Park). After each input to the NIC or the agent (a frame, a timer, a call of a
// task) the runtime compares News with the value for which it has last woken the host's tasks. If they differ, it keeps
// the new value and wakes all of them, and each checks its condition again.
//
//   - No wake-up is lost: the value is that of the last waking, or of the task's last look, and not that of the moment at
//     which it parked. What comes between its look and its Park wakes it at once.
//   - One waking covers all completions of an input. Which of them came first decides nothing: a task takes the whole
//     queue.
//   - A task that is woken without need parks again, at no cost in lab time. What one task does for another one, where
//     neither NIC nor agent takes part, is said by Host.Kick.
//
// drivers/sim compares after each event of the host, drivers/live (Host.News) after each input of the node's loop. A task
// of drivers/live that also waits for something outside the lab is woken by failures alone (virtrnic.NIC.Failures).
func News(nic *virtrnic.NIC, agent *mrp.Agent) uint64 { return nic.Completions() + agent.Changes() }
