// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Finding is one requirement on the host, and whether the host meets it.
type Finding struct {
	What   string `json:"what"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed"` // by every runtime but sim
	Got    string `json:"got"`
	Remedy string `json:"remedy,omitempty"`
}

// What a host must have.
const (
	kernelMajor, kernelMinor = 4, 20 // PACKET_IGNORE_OUTGOING
	memoryPerLab             = 1 << 30
	filesPerLab              = 1024
)

// Check examines whether this host can run labs.
func Check(ctx context.Context, engines []engine.Engine) (all []Finding) {
	var u unix.Utsname
	release := ""
	if unix.Uname(&u) == nil {
		release = unix.ByteSliceToString(u.Release[:])
	}
	var major, minor int
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor) // unreadable counts as too old
	all = append(all, Finding{
		What: fmt.Sprintf("kernel from %d.%d", kernelMajor, kernelMinor), Needed: true, Got: release,
		OK: major > kernelMajor || major == kernelMajor && minor >= kernelMinor, Remedy: "boot a newer kernel",
	}, Finding{
		What: "root", Needed: true, Got: fmt.Sprintf("user %d", os.Geteuid()), OK: os.Geteuid() == 0, Remedy: "run as root",
	}, packetSockets(), memory(), files())
	for _, e := range engines {
		all = append(all, runtimeOf(ctx, e))
	}
	return all
}

// readiness is an engine that can say why it cannot start nodes for this user.
type readiness interface {
	Ready(ctx context.Context) error
}

// runtimeOf finds out whether an engine can start nodes for the user who asks.
func runtimeOf(ctx context.Context, e engine.Engine) Finding {
	f := Finding{What: "runtime " + e.Name(), Got: "ready", OK: true}
	_, err := e.Labs(ctx)
	if r, ok := e.(readiness); err == nil && ok {
		err = r.Ready(ctx)
	}
	var why *engine.NotReadyError
	switch {
	case err == nil && os.Geteuid() != 0:
		f.OK, f.Got, f.Remedy = false, "needs root", "run as root"
	case errors.As(err, &why):
		f.OK, f.Got, f.Remedy = false, why.Why, why.Remedy
	case err != nil:
		f.OK, f.Got = false, strings.TrimPrefix(err.Error(), engine.ErrUnavailable.Error()+": ")
		f.Remedy = "apt-get install docker.io && systemctl start docker"
	}
	return f
}

// packetSockets tries to open what nodes send and receive through.
func packetSockets() Finding {
	f := Finding{What: "packet sockets", Needed: true, Got: "can be opened", OK: true}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	if err != nil {
		f.OK, f.Got, f.Remedy = false, err.Error(), "modprobe af_packet"
		if errors.Is(err, unix.EPERM) {
			f.Remedy = "run as root"
		}
	}
	return f
}

func memory() Finding {
	f := Finding{What: "1 GiB of free memory", Needed: true, Got: "unknown", Remedy: "end something, or use the runtime sim"}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return f
	}
	for _, line := range strings.Split(string(b), "\n") {
		w := strings.Fields(line)
		if len(w) > 1 && w[0] == "MemAvailable:" {
			if kb, err := strconv.ParseUint(w[1], 10, 64); err == nil {
				f.Got, f.OK = fmt.Sprintf("%d MiB", kb/1024), kb*1024 >= memoryPerLab
			}
		}
	}
	return f
}

func files() Finding {
	f := Finding{What: fmt.Sprintf("%d open files", filesPerLab), Needed: true, Got: "unknown", Remedy: "ulimit -n 4096"}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err == nil {
		f.Got, f.OK = strconv.FormatUint(r.Cur, 10), r.Cur >= filesPerLab
	}
	return f
}

// Failed returns an error that names what is needed and missing, or nil.
func Failed(all []Finding) error {
	var errs []error
	for _, f := range all {
		if f.Needed && !f.OK {
			errs = append(errs, fmt.Errorf("%s: %s (%s)", f.What, f.Got, f.Remedy))
		}
	}
	return errors.Join(errs...)
}
