// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// endWait bounds how long the kernel may take to end processes that are killed.
const endWait = 10 * time.Second

// endStrays ends the processes of containers that the engine has removed, by their ids. There are
// none unless the engine was killed while it started them: then it knows them as containers that
// never ran, and its removal leaves their processes alone. The control group of each names it; its
// shim, which would wait for the engine for ever, has the id among its arguments.
func endStrays(proc string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	for until := time.Now().Add(endWait); ; time.Sleep(2 * time.Millisecond) {
		left, err := strays(proc, ids)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("end processes of removed containers: %v still run %v after they were killed", left, endWait)
		}
		for _, pid := range left {
			p, err := os.FindProcess(pid)
			if err == nil {
				err = p.Kill()
			}
			if err != nil && !errors.Is(err, os.ErrProcessDone) {
				return fmt.Errorf("end process %d of a removed container: %w", pid, err)
			}
		}
	}
}

// strays returns the processes in control groups of these containers, followed by their shims. A shim
// by itself is no stray: the engine's own removal ends it a moment later.
func strays(proc string, ids []string) ([]int, error) {
	dirs, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("look for processes of removed containers: %w", err)
	}
	found, shims := []int{}, map[string]int{}
	lost := map[string]bool{}
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue // not a process
		}
		if id := named(filepath.Join(d, "cgroup"), ids, "/", "docker-"); id != "" && !zombie(d) {
			found, lost[id] = append(found, pid), true
		} else if id := named(filepath.Join(d, "cmdline"), ids, "-id\x00"); id != "" {
			shims[id] = pid
		}
	}
	for _, id := range ids {
		if lost[id] && shims[id] != 0 {
			found = append(found, shims[id])
		}
	}
	return found, nil
}

// named returns which of the ids a file of a process has right behind one of these texts, or an empty
// one. A file that cannot be read is that of a process that has ended.
func named(file string, ids []string, before ...string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for _, id := range ids {
		if slices.ContainsFunc(before, func(text string) bool { return bytes.Contains(b, []byte(text+id)) }) {
			return id
		}
	}
	return ""
}

// zombie reports whether nothing is left of the process with this folder but its exit status.
func zombie(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	return err != nil || bytes.Contains(b, []byte(") Z ")) || bytes.Contains(b, []byte(") X "))
}
