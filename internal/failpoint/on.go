// SPDX-License-Identifier: Apache-2.0

//go:build failpoint

package failpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var hits atomic.Int64

// At has an effect. MCASTLAB_FAIL names the step that fails, and the failure: the steps, two for each
// effect, are counted from 1, and one with an even number comes after its effect. The failure is "12"
// or "12:kill", the end of the process as by kill -9; "12:error:EBUSY", an effect that fails, or one
// whose success is not reported; "12:timeout", the same with a deadline; "12:run:COMMAND", anything the
// shell can do. The place of the failure is written to the file that MCASTLAB_FAIL_SEEN names, all
// steps to that of MCASTLAB_FAIL_COUNT.
func At(effect string, do func() error) error {
	if err := hit(effect); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return hit(effect + ", done")
}

func hit(at string) error {
	step, action, _ := strings.Cut(os.Getenv("MCASTLAB_FAIL"), ":")
	note("MCASTLAB_FAIL_COUNT", at+"\n")
	if strconv.FormatInt(hits.Add(1), 10) != step {
		return nil
	}
	note("MCASTLAB_FAIL_SEEN", at)
	kind, what, _ := strings.Cut(action, ":")
	switch kind {
	case "error":
		return fmt.Errorf("failpoint %s (%s): %w", step, at, errno(what))
	case "timeout":
		return fmt.Errorf("failpoint %s (%s): %w", step, at, context.DeadlineExceeded)
	case "run":
		if out, err := exec.Command("sh", "-c", what).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "failpoint %s (%s): %s: %v\n%s", step, at, what, err, out)
		}
		return nil
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// note appends to the file that a variable names, if any.
func note(variable, text string) {
	path := os.Getenv(variable)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "failpoint: %v\n", err)
	}
}

func errno(name string) error {
	for _, e := range []struct {
		name string
		err  error
	}{{"EBUSY", syscall.EBUSY}, {"EEXIST", syscall.EEXIST}, {"ENOSPC", syscall.ENOSPC}} {
		if e.name == name {
			return e.err
		}
	}
	return fmt.Errorf("no error is called %q", name)
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
