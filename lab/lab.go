// SPDX-License-Identifier: Apache-2.0

// Package lab reads, checks and writes lab files. Read returns a Lab, which has a field for each
// key of the file; fields of keys that the file leaves out have their defaults. Resolved and
// Compact write a Lab as a file again, and Schema returns the JSON schema of lab files, made from
// the same types. Reading is strict: an unknown key, a number without a unit or a host that does
// not exist is an error with line, column and remedy.
//
// To run a lab, call the program mcastlab (package command) with its file.
package lab

import "github.com/mcastlab/mcastlab/apps/registry"

// Lab is a lab file, NAME.mcl.yml.
type Lab struct {
	Name     string   `yaml:"name" json:"name,omitzero" doc:"name of the lab: a lower-case letter, then letters, digits and hyphens"`
	Seed     uint64   `yaml:"seed" json:"seed,omitzero" doc:"seed of every random draw of a run" default:"1"`
	Topology Topology `yaml:"topology" json:"topology,omitzero" doc:"hosts, switches and links"`
	Links    Links    `yaml:"links" json:"links,omitzero" doc:"settings of all links"`
	Switches Switches `yaml:"switches" json:"switches,omitzero" doc:"settings of all switches"`
	NICs     NICs     `yaml:"nics" json:"nics,omitzero" doc:"settings of all NICs"`
	Hosts    []Host   `yaml:"hosts" json:"hosts,omitzero" doc:"hosts that differ from the others"`
	Labels   []Label  `yaml:"labels" json:"labels,omitzero" doc:"names for sets of nodes, for use in faults"`
	// Controllers are the replicas of a running lab's control plane.
	Controllers int        `yaml:"controllers" json:"controllers,omitzero" doc:"replicas of the control plane of a running lab, 3 or 5; with 0 or 1 there are none, and the command line keeps the state of the lab; ignored in simulations" default:"0" enum:"0,1,3,5"`
	Runtime     Runtime    `yaml:"runtime" json:"runtime,omitzero" doc:"how the lab runs in containers; ignored in simulations"`
	Trace       string     `yaml:"trace" json:"trace,omitzero" doc:"records of a run beside its events: messages adds those of mcastlab trace (docs/traces.md); none costs nothing" default:"none" enum:"none,messages"`
	Times       string     `yaml:"times" json:"times,omitzero" doc:"times that a run writes beside their statistics: ranks writes those of each rank in each iteration of a collective to times.csv in its folder" enum:"ranks"`
	Workloads   []Workload `yaml:"workloads" json:"workloads,omitzero" doc:"programs and benchmarks of the hosts, run one after the other"`
	Faults      []Fault    `yaml:"faults" json:"faults,omitzero" doc:"faults to inject, and when"`
	Expect      []string   `yaml:"expect" json:"expect,omitzero" doc:"comparisons that the results must satisfy: bcast.cepheus.1MiB.jct.p50 < bcast.binomial.1MiB.jct.p50 / 2; CAL before a line states that a parameter was chosen so that it holds, PRED that none was"`
	// Sweep is nil if the lab runs once. ReadPoints returns its points.
	Sweep *Sweep `yaml:"sweep" json:"sweep,omitzero" doc:"keys with several values: run simulates all combinations, with repeats, and makes a table, a CSV and a plot"`
}

// Topology is the topology of a lab; exactly one field is set.
type Topology struct {
	FatTree    *FatTree    `yaml:"fat-tree" json:"fatTree,omitzero" doc:"k-ary fat-tree"`
	ThreeLayer *ThreeLayer `yaml:"three-layer" json:"threeLayer,omitzero" doc:"fat-tree of three layers with given counts"`
	LeafSpine  *LeafSpine  `yaml:"leaf-spine" json:"leafSpine,omitzero" doc:"two layers, every leaf linked to every spine"`
	MPortNTree *MPortNTree `yaml:"m-port-n-tree" json:"mPortNTree,omitzero" doc:"fat-tree of switches with m ports, n levels of them"`
	Star       *Star       `yaml:"star" json:"star,omitzero" doc:"one switch"`
	Custom     *Custom     `yaml:"custom" json:"custom,omitzero" doc:"nodes and links by hand"`
}

// FatTree is a k-ary fat-tree.
type FatTree struct {
	K int `yaml:"k" json:"k,omitzero" doc:"ports per switch, 2 to 64; k^3/4 hosts; with an odd k the halves are rounded down, and the pods are k" required:"true"`
}

// ThreeLayer is a three-layer fat-tree. A preset fills in values that are not given.
type ThreeLayer struct {
	Preset     string `yaml:"preset" json:"preset,omitzero" doc:"a fabric of the papers: ft1024, ft16384, or fig2 with 1024 hosts on 32-port switches" enum:"ft1024,ft16384,fig2"`
	Radix      int    `yaml:"radix" json:"radix,omitzero" doc:"ports per switch; the ports of a leaf that no host takes, and of an aggregation switch that no leaf takes, are uplinks: they must divide evenly among the switches above"`
	Pods       int    `yaml:"pods" json:"pods,omitzero" doc:"number of pods"`
	Leaves     int    `yaml:"leaves" json:"leaves,omitzero" doc:"leaf switches per pod"`
	Hosts      int    `yaml:"hosts" json:"hosts,omitzero" doc:"hosts per leaf"`
	Aggs       int    `yaml:"aggs" json:"aggs,omitzero" doc:"aggregation switches per pod"`
	Cores      int    `yaml:"cores" json:"cores,omitzero" doc:"core switches"`
	CoreGroups int    `yaml:"core-groups" json:"coreGroups,omitzero" doc:"groups of cores; aggregation switch i of a pod reaches group i mod core-groups; default: as many as aggs"`
}

// MPortNTree is IBFT(m, n) of the cyclic multicast paper.
type MPortNTree struct {
	M int `yaml:"m" json:"m,omitzero" doc:"ports per switch, even, 4 to 254; 2(m/2)^n hosts, which have LIDs if m is a power of two" required:"true"`
	N int `yaml:"n" json:"n,omitzero" doc:"levels of switches, from 2 on" required:"true"`
}

// LeafSpine is a two-layer fabric. A preset fills in values that are not given.
type LeafSpine struct {
	Preset   string `yaml:"preset" json:"preset,omitzero" doc:"a fabric of the papers: ucc188, of 188 hosts on 18 switches with 36 ports" enum:"ucc188"`
	Leaves   int    `yaml:"leaves" json:"leaves,omitzero" doc:"leaf switches"`
	Spines   int    `yaml:"spines" json:"spines,omitzero" doc:"spine switches"`
	Hosts    int    `yaml:"hosts" json:"hosts,omitzero" doc:"hosts per leaf, at most, if total is given"`
	Parallel int    `yaml:"parallel" json:"parallel,omitzero" doc:"links between each leaf and each spine; default: 1, or those of the preset"`
	Total    int    `yaml:"total" json:"total,omitzero" doc:"hosts in all, if the leaves have not all the same number; the first have one more than the others"`
}

// Star is one switch.
type Star struct {
	Hosts int `yaml:"hosts" json:"hosts,omitzero" doc:"hosts, 2 to 254" required:"true"`
}

// Custom is a graph whose nodes and links the file lists, or a preset.
type Custom struct {
	Preset   string       `yaml:"preset" json:"preset,omitzero" doc:"nodes and links of a paper: figtree, the figure by which Cepheus is explained; back-to-back, two hosts and no switch" enum:"figtree,back-to-back"`
	Hosts    []string     `yaml:"hosts" json:"hosts,omitzero" doc:"host names, in rank order"`
	Switches []string     `yaml:"switches" json:"switches,omitzero" doc:"switch names"`
	Links    []CustomLink `yaml:"links" json:"links,omitzero" doc:"links as a-b, or a:0-b:3 with ports"`
}

// CustomLink is a link of a custom graph: its ends as text, or with parameters.
type CustomLink struct {
	Ends  string    `yaml:"ends" json:"ends,omitzero" doc:"a-b, or a:0-b:3 with ports" required:"true"`
	Rate  *Rate     `yaml:"rate" json:"rate,omitzero" doc:"default: the value of links, or of their tier"`
	Delay *Duration `yaml:"delay" json:"delay,omitzero" doc:"default: the value of links, or of their tier"`
}

// Links holds the settings that all links share.
type Links struct {
	Rate  Rate     `yaml:"rate" json:"rate,omitzero" doc:"bits per second in each direction" default:"100Gbps"`
	Delay Duration `yaml:"delay" json:"delay,omitzero" doc:"propagation delay of one direction" default:"600ns"`
	// Tiers are the parameters in which links between some tiers differ; nil: none.
	Tiers *LinkTiers `yaml:"tiers" json:"tiers,omitzero" doc:"settings of the links between two tiers that differ: {leaf-spine: {rate: 400Gbps}}"`
	IP    int        `yaml:"ip" json:"ip,omitzero" doc:"address family of all packets: 4, or 6 for RoCEv2 over IPv6" default:"4" enum:"4,6"`
	VLAN  int        `yaml:"vlan" json:"vlan,omitzero" doc:"802.1Q VLAN of all packets, 1 to 4094, with the priority as code point; 0: untagged" default:"0"`
}

// Switches holds the settings that all switches share.
type Switches struct {
	Buffer        Size        `yaml:"buffer" json:"buffer,omitzero" doc:"shared packet buffer of a switch" default:"32MB"`
	Latency       Duration    `yaml:"latency" json:"latency,omitzero" doc:"time from the last bit of a frame to the forwarding decision, for pause frames, too" default:"400ns"`
	Forwarding    string      `yaml:"forwarding" json:"forwarding,omitzero" doc:"store-and-forward or cut-through" default:"store-and-forward" enum:"store-and-forward,cut-through"`
	Queues        string      `yaml:"queues" json:"queues,omitzero" doc:"where packets wait: output, at the egress port; or input, at the ingress port, with head-of-line blocking (with cut-through: a virtual cut-through switch)" default:"output" enum:"output,input"`
	Replication   string      `yaml:"replication" json:"replication,omitzero" doc:"with queues: input, when the copies of a packet start: async, each when its port is free; or sync, together" default:"async" enum:"async,sync"`
	FlowControl   string      `yaml:"flow-control" json:"flowControl,omitzero" doc:"with queues: input, of priorities with PFC: pfc; or credits: an input holds one packet, and the neighbour sends the next when it has left (simulations only)" default:"pfc" enum:"pfc,credits"`
	PFC           PFC         `yaml:"pfc" json:"pfc,omitzero" doc:"priority-based flow control: true, false, or its settings"`
	ECN           ECN         `yaml:"ecn" json:"ecn,omitzero" doc:"marking of packets that wait in long queues: true, false, or its settings"`
	Watchdog      Watchdog    `yaml:"watchdog" json:"watchdog,omitzero" doc:"PFC watchdog, which recovers a port stuck in pause: true, false, or its settings"`
	Scheduling    []int       `yaml:"scheduling" json:"scheduling,omitzero" doc:"weights of priorities 0 to 7, 0 to 255; priorities with weight 0 are strict and go before the others, the higher number first; default: all strict"`
	Classes       []ClassRule `yaml:"classes" json:"classes,omitzero" doc:"priorities of DSCPs and 802.1Q priority code points that differ from the default: the upper three bits of the DSCP, and the code point itself"`
	Reconverge    Duration    `yaml:"reconverge" json:"reconverge,omitzero" doc:"time until all switches have routes around a link that went down; the switch at the link has them at once" default:"1ms"`
	Groups        int         `yaml:"groups" json:"groups,omitzero" doc:"most multicast groups of a switch" default:"1024"`
	GroupMemory   *Size       `yaml:"group-memory" json:"groupMemory,omitzero" doc:"memory for the tables of groups: a group takes 7 bytes and 11 for each port of the switch, with rules: gleam 14 for each port, and 12 more for each memory region; default: enough for groups"`
	GroupNet      string      `yaml:"group-net" json:"groupNet,omitzero" doc:"network of the group addresses; default: 10.254.0.0/16"`
	FanOut        int         `yaml:"fan-out" json:"fanOut,omitzero" doc:"most egress ports of a group at a switch; 0: no limit" default:"0"`
	GroupAge      Duration    `yaml:"group-age" json:"groupAge,omitzero" doc:"idle time after which a switch deletes a group, when the next one is registered or the lab is inspected; a group whose registration makes no progress goes after 1s; 0: never" default:"600s"`
	CNPFilter     CNPFilter   `yaml:"cnp-filter" json:"cnpFilter,omitzero" doc:"forward CNPs of a group's most congested path only: true, false, or its settings"`
	FeedbackDelay Duration    `yaml:"feedback-delay" json:"feedbackDelay,omitzero" doc:"time that a processor beside the switch takes for each feedback packet of a group" default:"0"`
	Accelerator   string      `yaml:"accelerator" json:"accelerator,omitzero" doc:"where groups are served: inline in the switch; or look-aside, in an accelerator on four links like those of the lab (one switch only)" default:"inline" enum:"inline,look-aside"`
	Rules         string      `yaml:"rules" json:"rules,omitzero" doc:"multicast rules: fixed; or cepheus or gleam, as their papers state them" default:"fixed" enum:"fixed,cepheus,gleam"`
}

// PFC is priority flow control. A file may give true or false in place of the settings.
type PFC struct {
	Enabled      bool    `yaml:"enabled" json:"enabled,omitzero" doc:"off: all classes are lossy" default:"true"`
	Priorities   []int   `yaml:"priorities" json:"priorities,omitzero" doc:"lossless classes, 0 to 7" default:"3"`
	XOFF         *Size   `yaml:"xoff" json:"xoff,omitzero" doc:"bytes that one port has received in one class when it pauses its neighbour; default: a share of half the buffer"`
	XON          *Size   `yaml:"xon" json:"xon,omitzero" doc:"bytes at which the neighbour may resume; default: three quarters of xoff"`
	Headroom     *Size   `yaml:"headroom" json:"headroom,omitzero" doc:"buffer for frames that still arrive after xoff; default: computed from rate, delay and frame size"`
	Alpha        float64 `yaml:"alpha" json:"alpha,omitzero" doc:"dynamic thresholds instead of xoff and xon: a queue may hold alpha times the free shared buffer, 0.0078125 to 64; 0: static" default:"0"`
	ResumeOffset *Size   `yaml:"resume-offset" json:"resumeOffset,omitzero" doc:"bytes below the threshold, xoff or that of alpha, at which a paused neighbour may resume, or with nothing waiting; default: xon, with alpha three quarters of the threshold, and with alpha and congestion: dcqcn-hpcc 3KiB"`
	Quanta       int     `yaml:"quanta" json:"quanta,omitzero" doc:"pause time, in units of 512 bit times, 256 to 65535; the pause is repeated after half of it" default:"65535"`
}

// NICs holds the settings that all network adapters share.
type NICs struct {
	MTU          int       `yaml:"mtu" json:"mtu,omitzero" doc:"RoCE path MTU: payload bytes per packet" default:"4096" enum:"256,512,1024,2048,4096"`
	AckEvery     int       `yaml:"ack-every" json:"ackEvery,omitzero" doc:"ask for an acknowledgement on every n-th packet and on the last of a message" default:"16"`
	Window       int       `yaml:"window" json:"window,omitzero" doc:"most unacknowledged packets of a queue pair; 0: no limit" default:"0"`
	Timeout      Timeout   `yaml:"timeout" json:"timeout,omitzero" doc:"retransmission timeout, rounded up to 4.096us x 2^n; or infinite" default:"4.194304ms"`
	Retries      int       `yaml:"retries" json:"retries,omitzero" doc:"repeats without progress before a work request fails, 0 to 7" default:"7"`
	RNRRetries   Retries   `yaml:"rnr-retries" json:"rnrRetries,omitzero" doc:"repeats after a receiver was not ready, 0 to 6; or infinite" default:"6"`
	RNRTimer     Duration  `yaml:"rnr-timer" json:"rnrTimer,omitzero" doc:"wait that a receiver that is not ready asks for, rounded up to the verbs' table" default:"640us"`
	Retransmit   string    `yaml:"retransmit" json:"retransmit,omitzero" doc:"packets sent again after a loss: go-back-n, all from the lost one on; irn, the missing ones, if both NICs have it" default:"go-back-n" enum:"go-back-n,irn"`
	IRN          *IRN      `yaml:"irn" json:"irn,omitzero" doc:"settings of retransmit: irn; default: those of its paper"`
	Congestion   string    `yaml:"congestion" json:"congestion,omitzero" doc:"congestion control: none, or DCQCN with the parameters of its paper, of ConnectX adapters, or of the HPCC paper; switches must mark (ecn)" default:"none" enum:"none,dcqcn,dcqcn-connectx,dcqcn-hpcc"`
	ByteCounter  *Size     `yaml:"byte-counter" json:"byteCounter,omitzero" doc:"bytes of a queue pair that make a round of DCQCN's recovery; default: by congestion (dcqcn: 10MB, dcqcn-connectx: 32767B)"`
	TrafficClass Class     `yaml:"traffic-class" json:"trafficClass,omitzero" doc:"DSCP of RoCE packets; its upper three bits are the priority" default:"26"`
	Scheduling   []int     `yaml:"scheduling" json:"scheduling,omitzero" doc:"weights of priorities 0 to 7, 0 to 255; priorities with weight 0 are strict and go before the others, the higher number first; default: all strict"`
	ICRC         string    `yaml:"icrc" json:"icrc,omitzero" doc:"full: computed and checked on every packet; flag: carried as a flag (phantom memory only)" default:"full" enum:"full,flag"`
	HostCost     *HostCost `yaml:"host-cost" json:"hostCost,omitzero" doc:"latency of host software; default: 0"`
}

// IRN is the settings of selective repeat.
type IRN struct {
	Cap     *Size    `yaml:"cap" json:"cap,omitzero" doc:"most payload of a queue pair in flight; default: rate x round trip of the longest path"`
	RTOLow  Duration `yaml:"rto-low" json:"rtoLow,omitzero" doc:"retransmission timeout while at most three packets are in flight" default:"100us"`
	RTOHigh Duration `yaml:"rto-high" json:"rtoHigh,omitzero" doc:"retransmission timeout while more packets are in flight" default:"320us"`
}

// HostCost is the latency of host software.
type HostCost struct {
	Post       Duration `yaml:"post" json:"post,omitzero" doc:"posting a work request" default:"0"`
	Poll       Duration `yaml:"poll" json:"poll,omitzero" doc:"taking a completion" default:"0"`
	Stack      Duration `yaml:"stack" json:"stack,omitzero" doc:"per message, at sender and at receiver" default:"0"`
	Connection Duration `yaml:"connection" json:"connection,omitzero" doc:"per message sent over a connection, not to a group: what MPI's point-to-point layer adds" default:"0"`
	Jitter     Duration `yaml:"jitter" json:"jitter,omitzero" doc:"random extra time of each, up to this" default:"0"`
}

// Runtime holds the settings of a lab in real time.
type Runtime struct {
	Dilation   Dilation `yaml:"dilation" json:"dilation,omitzero" doc:"wall time per lab time, from 1 up; auto: the smallest at which this server keeps accurate time" default:"auto"`
	Clock      string   `yaml:"clock" json:"clock,omitzero" doc:"lockstep: lab time is virtual, and the run is the simulation to the bit on any server; dilated: lab time is wall time, slowed down; auto: dilated in labs with external hosts or with a dilation, else lockstep" default:"auto" enum:"auto,lockstep,dilated"`
	Channel    Duration `yaml:"channel-delay" json:"channelDelay,omitzero" doc:"latency of the out-of-band channel between a host and the state that ranks share (published values, barriers, leases of groups); above 0 with clock: lockstep" default:"1us"`
	Management bool     `yaml:"management" json:"management,omitzero" doc:"management network between the hosts of a running lab, for the TCP connections of programs" default:"false"`
	Hosts      string   `yaml:"hosts" json:"hosts,omitzero" doc:"servers of the testbed (mcastlab servers) for the lab, with --runtime docker: auto, all that are ready; or some, by name: sw1,sw2, or by labels of the Swarm: node.labels.rack==a (docs/hosts.md); default: this server alone"`
	Links      string   `yaml:"links" json:"links,omitzero" doc:"links between servers of the testbed: vxlan, by the kernel; userspace, frames of all links between two servers over one connection; auto: vxlan where its datagrams pass between two servers, else userspace; default: auto" enum:"auto,vxlan,userspace"`
	IO         string   `yaml:"io" json:"io,omitzero" doc:"frames: each frame crosses a link by itself; trains: frames of one flow that leave together cross as one kernel buffer, several times faster, and tcpdump shows the buffers" default:"frames" enum:"frames,trains"`
}

// Values of runtime.clock. A lab that has been read has one of the last two.
const (
	clockAuto     = "auto"
	ClockLockstep = "lockstep" // lab time is virtual in running labs, too
	ClockDilated  = "dilated"  // it follows the wall clock of the server that runs the lab
)

// Workload is one entry of workloads. Package apps/registry has all kinds.
type Workload = registry.Workload

// TraceMessages is the value of trace that records the course of messages.
const TraceMessages = "messages"

// TimesRanks is the value of times that writes the time of each rank in each iteration.
const TimesRanks = "ranks"
