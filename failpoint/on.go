//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
)

var hits atomic.Int64

// Hit kills the process, as kill -9 does, if MCASTLAB_FAIL names this step by its number,
// counted from 1.
func Hit(string) {
	if fmt.Sprint(hits.Add(1)) == os.Getenv("MCASTLAB_FAIL") {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// Node ends the process of a node that is named after the step, as in dies-at-start-0.
func Node(at string) {
	name, _ := os.Hostname()
	if n := os.Getenv("MCASTLAB_NODE"); n != "" {
		name = n
	}
	if strings.HasPrefix(name, at) {
		fmt.Fprintf(os.Stderr, "mcastlab node: failpoint %s\n", at)
		os.Exit(3)
	}
}
