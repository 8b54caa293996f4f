// SPDX-License-Identifier: Apache-2.0

package virtswitch

import "github.com/mcastlab/mcastlab/core/vtime"

// Settings holds the parameters that all switches of a lab share. Package lab fills it from the lab
// file, and package fabric passes it on: it adds only the parameters that depend on the ports of one
// switch, which are PFC.Headroom, ECN.Kmin and ECN.Kmax, and the switch's random stream ECN.Random.
type Settings struct {
	Buffer int // shared packet buffer in bytes
	PFC    PFCConfig
	ECN    ECNConfig
	// Watchdog looks after priorities that neighbours pause without end.
	Watchdog WatchdogConfig
	// Classes maps frames to priorities; nil: DefaultClasses.
	Classes *Classes
	// Weights holds the share of each priority in the weighted round, which is served below
	// the strict priorities; 0: the priority is strict. Of two strict priorities the one with
	// the higher number goes first.
	Weights [8]uint8
	Rules   Rules
	Groups  int // most groups registered at once; 0: GroupsMax. A group with regions takes the room of two or three (MFTBytes).
	// GroupMemory is the bytes of multicast forwarding tables that there is room for (CEP-20, GLE-2);
	// 0: those of Groups.
	GroupMemory int
	FanOut      int // most paths that a group's data may leave by, the source's not counted; 0: no limit (CEP-49)
	// GroupAge is the time that a group may be idle before Age deletes it; 0: for ever.
	GroupAge vtime.Duration
	// CNPWindow is the window of the CNP filter (CEP-43), in which counts halve; 0: every
	// CNP is passed on.
	CNPWindow vtime.Duration
	// FeedbackDelay is the time that the feedback processor takes for each packet of group
	// feedback, one after the other (CEP-48); 0: there is no such processor.
	FeedbackDelay vtime.Duration
	// LookAside moves the handling of groups to an accelerator beside the switch (CEP-45).
	LookAside LookAsideConfig
	// Input makes the switch queue packets at their ingress; nil: at their egress.
	Input *InputConfig
}
