// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// Held counts the objects that a node holds at the moment: those that runs make, and those of its
// process. Between two runs a running lab holds the objects of its deployment.
type Held struct {
	// Of a switch. Half-installed groups are among its groups.
	Groups    int `json:"groups,omitempty"`
	Half      int `json:"half_installed,omitempty"`
	PortLoad  int `json:"port_load,omitempty"` // paths of groups, over all ports
	Multicast int `json:"multicast_entries,omitempty"`

	// Of a host.
	Rank          bool `json:"rank,omitempty"`          // a rank runs, or has not been released yet
	Tasks         int  `json:"tasks,omitempty"`         // of its program
	QPs           int  `json:"qps,omitempty"`           //
	MRs           int  `json:"mrs,omitempty"`           //
	CQs           int  `json:"cqs,omitempty"`           //
	PDs           int  `json:"pds,omitempty"`           //
	Others        int  `json:"others,omitempty"`        // address handles, shared receive queues, attachments to multicast groups
	Registrations int  `json:"registrations,omitempty"` // groups it leads, until their deletion is confirmed
	Memberships   int  `json:"memberships,omitempty"`   // groups it answers for

	Timers      int `json:"timers,omitempty"`       // armed
	QueuedBytes int `json:"queued_bytes,omitempty"` // of a switch's buffer

	// By port; left out where all are 0.
	Queues []int `json:"port_queued_bytes,omitempty"` // of a switch: frames that wait to be sent
	Paused []int `json:"port_paused,omitempty"`       // bit mask of the priorities that the neighbour has paused

	Goroutines int `json:"goroutines,omitempty"`
	Files      int `json:"files,omitempty"` // open descriptors
}

// Switch records the objects that a switch holds. It leaves out deleted groups, whose McstIDs are not
// reused for a while after every run, and their timer.
func (h *Held) Switch(sw *virtswitch.Switch, groups []Group) {
	a := sw.Holding()
	h.Groups, h.PortLoad, h.Multicast, h.QueuedBytes, h.Timers = a.Groups, a.PortLoad, a.Multicast, a.Buffered, a.Timers
	if a.Buried > 0 {
		h.Timers--
	}
	for port := range sw.Ports() {
		h.waits(port, sw.Ports(), sw.QueuedAt(port), sw.PausedAt(port))
	}
	for i := range groups {
		if !groups[i].Active {
			h.Half++
		}
	}
}

// NIC records the objects that a NIC holds.
func (h *Held) NIC(nic *virtrnic.NIC) {
	m := nic.Made()
	h.QPs, h.MRs, h.CQs, h.PDs, h.Others = m.QPs, m.MRs, m.CQs, m.PDs, m.AHs+m.SRQs+m.Attached
	h.Timers = nic.ArmedTimers()
	h.waits(0, 1, 0, nic.Paused())
}

// waits enters the frames that wait at one of the given ports.
func (h *Held) waits(port, ports, queued int, paused uint8) {
	if queued > 0 {
		if h.Queues == nil {
			h.Queues = make([]int, ports)
		}
		h.Queues[port] = queued
	}
	if paused > 0 {
		if h.Paused == nil {
			h.Paused = make([]int, ports)
		}
		h.Paused[port] = int(paused)
	}
}

// Agent records the objects that a registration agent holds.
func (h *Held) Agent(a *mrp.Agent) {
	h.Memberships, h.Registrations = a.Groups()
	if _, armed := a.NextTimeout(); armed {
		h.Timers++
	}
}
