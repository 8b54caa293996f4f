package nodeagent

import (
	"fmt"
	"os"
)

// endTasks ends what runs on the host. A program that blocks outside package rank cannot be
// ended but with its process; the lab's next deployment starts the node again.
func (n *node) endTasks() {
	if n.host.Stop() {
		return
	}
	task, _ := n.host.Outside()
	if task == "" {
		task = "a task"
	}
	fmt.Fprintf(os.Stderr, "mcastlab node %s: %s does not end: it blocks outside package rank, so the node ends with it\n", n.name, task)
	os.Exit(1)
}
