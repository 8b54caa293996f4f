//go:build failpoint

package nodeagent

import (
	"fmt"
	"os"
	"strings"
)

// failpoint ends the process of a node that is named after it, as in dies-at-start-0. It
// is there in builds for tests of what goes wrong (-tags failpoint).
func failpoint(at string) {
	name, _ := os.Hostname()
	if n := os.Getenv("MCASTLAB_NODE"); n != "" {
		name = n
	}
	if strings.HasPrefix(name, at) {
		fmt.Fprintf(os.Stderr, "mcastlab node: failpoint %s\n", at)
		os.Exit(3)
	}
}
