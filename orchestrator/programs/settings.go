// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"fmt"
	"os"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator"
)

// udTick is UCX's timeout before it retransmits a datagram, and udTickMax the limit of the setting. UCX measures by the wall
// clock what the lab carries by its own: a datagram that is retransmitted because the lab's clock is slow, and crosses the
// reply to the first, ends UCX 1.13 by an assertion while two ranks connect (openucx/ucx issues 2453, 6040 and 11107). UCX's
// default of 10 ms times the dilation was too short where 16 ranks share two cores.
const (
	udTick    = 100 * time.Millisecond
	udTickMax = 10 * time.Second
)

// setting is a variable of the environment, or a parameter of Open MPI, and the value that it gets.
type setting struct{ name, value string }

// programSettings returns the settings of programs with a NIC. UCX 1.22 takes a RoCE device for unreachable if the kernel has no
// route by its interface, as in a lab; older versions warn of each variable that they do not know.
func programSettings() []setting {
	return []setting{{"UCX_IB_ROCE_REACHABILITY_MODE", "all"}, {"UCX_WARN_UNUSED_ENV_VARS", "n"}}
}

// rankSettings returns the additional settings of MPI ranks at this dilation.
func rankSettings(dilation float64) []setting {
	tick := min(udTickMax, time.Duration(float64(udTick)*max(1, dilation)))
	return []setting{{"UCX_NET_DEVICES", "mcast0:1"}, {"UCX_TLS", "rc,self"}, {"UCX_UD_TIMER_TICK", fmt.Sprintf("%dms", tick.Milliseconds())}}
}

// mcaPrefix begins the variables by which a user sets parameters of Open MPI.
const mcaPrefix = "OMPI_MCA_"

// mpiSettings are parameters of Open MPI. osc/rdma would be taken for one-sided communication and ends the job, since the
// atomics that it wants of btl/ofi are not there; without it osc/ucx is.
func mpiSettings() []setting {
	return []setting{{"mpi_yield_when_idle", "1"}, {"orte_leave_session_attached", "1"}, {"pml", "ucx"}, {"btl", "^openib"}, {"osc", "^rdma"}}
}

// unset returns those settings that the user does not have in the environment by that name behind the prefix.
func unset(prefix string, all ...setting) (left []setting) {
	for _, s := range all {
		if _, ok := os.LookupEnv(prefix + s.name); !ok {
			left = append(left, s)
		}
	}
	return left
}

// ProgramSettings returns the variables, NAME=VALUE, that programs with a NIC are given since the user has not set them.
func ProgramSettings() []string { return assignments(unset("", programSettings()...)) }

// MPISettings returns the variables and the options of mpirun that an MPI program at the lab is given since the user has not set them.
func MPISettings(d *orchestrator.Deployed) ([]string, error) {
	r, err := d.RestClock(nil)
	if err != nil {
		return nil, err
	}
	all := assignments(unset("", append(programSettings(), rankSettings(r.Dilation)...)...))
	for _, s := range unset(mcaPrefix, mpiSettings()...) {
		all = append(all, "--mca "+s.name+" "+s.value)
	}
	return all, nil
}

func assignments(l []setting) (all []string) {
	for _, s := range l {
		all = append(all, s.name+"="+s.value)
	}
	return all
}
