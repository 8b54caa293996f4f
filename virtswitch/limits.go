// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Bounds of a switch, each with its reason.
const (
	// PortsMax fits the path index into a byte, as the packed table of CEP-21 has it.
	PortsMax = 254
	// GroupsMax is the number of groups that a McstID range of /16 can name.
	GroupsMax = 1 << 16
	// ReductionsMax is the number of groups that may have a table for reductions: two windows of sums and, for each port, one
	// of parts.
	ReductionsMax = 8
	// MembershipsMax bounds the ports of all groups of programs together: 4,096 groups, the most that a NIC lets a
	// program join, with members behind four ports each. They take about 1 MiB.
	MembershipsMax = 1 << 14
	// pauseQuanta is the pause that an XOFF asks for: the longest the frame can carry.
	pauseQuanta = 0xffff
	// PauseQuantaMin keeps a pause alive that is repeated at half its time: the repeat may
	// have to wait for the largest frame, which takes 67 quanta.
	PauseQuantaMin = 256
	// mtuMax is the largest RoCE path MTU.
	mtuMax = 4096
	// maxFrameWire is the largest RoCE frame on the wire: 4 KiB of payload, the
	// longest headers, ICRC, FCS, preamble and gap. Headroom is computed with it.
	maxFrameWire = mtuMax + 112 + wire.ICRCLen + wire.LinkOverhead
	// mrpBytesMax is the largest registration packet (CEP-9).
	mrpBytesMax = 1500
	// pfcWire is a pause frame on the wire.
	pfcWire = wire.PFCLen + wire.LinkOverhead
	// deferredMax is the number of frames that may wait for the feedback processor and the accelerator.
	deferredMax = 1 << 14
	// pauseGap is the delay of a pause frame after its cause. It makes the order in which ports start
	// frames at one instant immaterial.
	pauseGap = vtime.Picosecond
	// quarantineMin is the shortest time that a deleted group is remembered after the last packet that
	// deletes it, so that a repeat still finds its tree. It exceeds the longest pause between the
	// registrar's repeats, 80 ms.
	quarantineMin = 100 * vtime.Millisecond
	// unopenedAge is the time after which a group whose registration makes no progress is deleted:
	// longer than a live registrar takes for all its repeats.
	unopenedAge = vtime.Second
)
