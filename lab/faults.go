// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// Fault is one entry of faults: a failure that occurs once or repeatedly.
type Fault struct {
	In          string      `yaml:"in" json:"in,omitzero" doc:"row: it comes again in each row of the results, whose start its times count from, and is gone at its end; or run: its times count from the start of the run, through all rows" default:"row" enum:"row,run"`
	At          Duration    `yaml:"at" json:"at,omitzero" doc:"when, in lab time from the start of the row, or of the run" default:"0"`
	For         *Duration   `yaml:"for" json:"for,omitzero" doc:"for how long; then everything is as before. Default: to the end; of agent-crash 10ms"`
	Every       *Duration   `yaml:"every" json:"every,omitzero" doc:"it comes again so long after it last began"`
	Probability Probability `yaml:"probability" json:"probability,omitzero" doc:"probability that the fault occurs, drawn for each occurrence: above 0 to 1, or 100%" default:"1"`

	Loss         *LinkFault  `yaml:"loss" json:"loss,omitzero" doc:"links lose frames"`
	Corrupt      *LinkFault  `yaml:"corrupt" json:"corrupt,omitzero" doc:"links flip a bit of RoCE packets"`
	Truncate     *LinkFault  `yaml:"truncate" json:"truncate,omitzero" doc:"links deliver only the beginning of frames"`
	Duplicate    *LinkFault  `yaml:"duplicate" json:"duplicate,omitzero" doc:"links deliver frames twice"`
	Reorder      *LinkFault  `yaml:"reorder" json:"reorder,omitzero" doc:"links hold frames back"`
	Delay        *LinkFault  `yaml:"delay" json:"delay,omitzero" doc:"links take longer, and no frame passes another"`
	RateCut      *CutFault   `yaml:"rate-cut" json:"rateCut,omitzero" doc:"links are slower, both ways"`
	LinkDown     *DownFault  `yaml:"link-down" json:"linkDown,omitzero" doc:"links have no carrier; with every they flap"`
	Pause        *PauseFault `yaml:"pause" json:"pause,omitzero" doc:"hosts' adapters pause their switch, and resume it at the end"`
	PauseStorm   *StormFault `yaml:"pause-storm" json:"pauseStorm,omitzero" doc:"hosts' adapters send pause frames all the time"`
	Crash        *NodeFault  `yaml:"crash" json:"crash,omitzero" doc:"switches or hosts are dead: their links are down, and what they knew and held is lost; on a host the programs end. After for they are back, empty"`
	AgentCrash   *NodeFault  `yaml:"agent-crash" json:"agentCrash,omitzero" doc:"as crash, of the process that is the switch or host: it is started again after for, 10ms unless said otherwise, and no workload begins before"`
	Restart      *NodeFault  `yaml:"restart" json:"restart,omitzero" doc:"switches or hosts lose what they know and hold, and continue; their links stay up"`
	WipeMFT      *NodeFault  `yaml:"wipe-mft" json:"wipeMft,omitzero" doc:"switches forget their multicast groups"`
	MFTFull      *RoomFault  `yaml:"mft-full" json:"mftFull,omitzero" doc:"switches have no memory for more groups"`
	NICStall     *NodeFault  `yaml:"nic-stall" json:"nicStall,omitzero" doc:"stall the hosts' NICs: received frames wait, nothing is sent, no timer fires"`
	SlowReceiver *SlowFault  `yaml:"slow-receiver" json:"slowReceiver,omitzero" doc:"hosts take what arrives more slowly than it comes, and pause their switch"`

	ControlPartition *ControlFault   `yaml:"control-partition" json:"controlPartition,omitzero" doc:"controllers are cut off from the others; of running labs with controllers"`
	ControllerCrash  *ControllerDown `yaml:"controller-crash" json:"controllerCrash,omitzero" doc:"controllers lose their memory, and restart from their disk after for"`
}

// FaultInRun is the value of Fault.In for a fault whose times count from the start of the run. Any other
// means that it comes again in each row.
const FaultInRun = "run"

// ControlFault cuts controllers off from the others.
type ControlFault struct {
	Controllers Names  `yaml:"controllers" json:"controllers,omitzero" doc:"names controller0 to controller4, patterns, expressions re:^controller[01]$" required:"true"`
	Direction   string `yaml:"direction" json:"direction,omitzero" doc:"both; out: messages from them are lost; or in: messages to them are lost" default:"both" enum:"both,out,in"`
}

// ControllerDown is a fault of controllers.
type ControllerDown struct {
	Controllers Names `yaml:"controllers" json:"controllers,omitzero" doc:"as for control-partition" required:"true"`
}

// LinkFault is a fault that happens to single frames.
type LinkFault struct {
	Links          Names           `yaml:"links" json:"links,omitzero" doc:"links: patterns of names, with or without ports: agg*-core*, h0:0-leaf0:0; expressions re:^h[0-3]-; tiers tier:leaf-agg; those at nodes with a label: label:rack1" default:"*"`
	Direction      string          `yaml:"direction" json:"direction,omitzero" doc:"both; up, from the lower tier; or down" default:"both" enum:"both,up,down"`
	Sender         Names           `yaml:"sender" json:"sender,omitzero" doc:"only frames that leave these nodes"`
	Frames         *Frames         `yaml:"frames" json:"frames,omitzero" doc:"frames to match; default: all but pause frames"`
	Rate           *Probability    `yaml:"rate" json:"rate,omitzero" doc:"probability per frame, 0 to 1, or 0% to 100%; delay needs none"`
	Nth            []int           `yaml:"nth" json:"nth,omitzero" doc:"in place of rate: numbers of the frames to hit, counted from 1 over the matching frames of each direction of each link"`
	EveryNth       int             `yaml:"every-nth" json:"everyNth,omitzero" doc:"in place of rate: every n-th frame; 0: none" default:"0"`
	GilbertElliott *GilbertElliott `yaml:"gilbert-elliott" json:"gilbertElliott,omitzero" doc:"in place of rate, for loss: bursts"`
	Delay          *Duration       `yaml:"delay" json:"delay,omitzero" doc:"of duplicate and reorder: longest delay of the held frame or the copy, default 5us; of delay: extra delay of each frame"`
	Jitter         *Duration       `yaml:"jitter" json:"jitter,omitzero" doc:"of delay: random extra delay of each frame, up to this"`
}

// GilbertElliott is loss in bursts: a link is good or bad, and may change with each frame.
type GilbertElliott struct {
	ToBad    Probability `yaml:"to-bad" json:"toBad,omitzero" doc:"probability per frame that a good link becomes bad" required:"true"`
	ToGood   Probability `yaml:"to-good" json:"toGood,omitzero" doc:"probability per frame that a bad link becomes good" required:"true"`
	LossBad  Probability `yaml:"loss-bad" json:"lossBad,omitzero" doc:"probability of loss while it is bad" default:"1"`
	LossGood Probability `yaml:"loss-good" json:"lossGood,omitzero" doc:"probability of loss while it is good" default:"0"`
}

// Frames selects the frames to which all given conditions apply.
type Frames struct {
	Kind   Names   `yaml:"kind" json:"kind,omitzero" doc:"data, ack, nak, response, cnp, mrp, pfc, other: one or several"`
	Opcode Names   `yaml:"opcode" json:"opcode,omitzero" doc:"opcodes, as in docs/wire.md: RC_SEND_ONLY; patterns: RC_SEND_*"`
	PSN    *PSNs   `yaml:"psn" json:"psn,omitzero" doc:"packet sequence numbers: 7, or 100..200"`
	QP     *Number `yaml:"qp" json:"qp,omitzero" doc:"destination queue pair"`
	From   Names   `yaml:"from" json:"from,omitzero" doc:"source hosts, by address"`
	To     Names   `yaml:"to" json:"to,omitzero" doc:"destination hosts, by address; group: a multicast group"`
}

// PSNs is a range of packet sequence numbers; the last may be beyond the wrap.
type PSNs [2]wire.PSN

// Set reads a PSN, or a first and a last one.
func (p *PSNs) Set(s string) error {
	from, to, ranged := strings.Cut(s, "..")
	if !ranged {
		to = from
	}
	a, errA := strconv.ParseUint(from, 10, 24)
	b, errB := strconv.ParseUint(to, 10, 24)
	if errA != nil || errB != nil {
		return fmt.Errorf("%q is not a PSN from 0 to 16777215, or a range of them: 100..200", s)
	}
	*p = PSNs{wire.PSN(a), wire.PSN(b)}
	if p[1].Sub(p[0]) < 0 {
		return fmt.Errorf("%q is not a range: it spans half of all PSNs or more", s)
	}
	return nil
}

// String prints the range.
func (p PSNs) String() string {
	if p[0] == p[1] {
		return strconv.Itoa(int(p[0]))
	}
	return fmt.Sprintf("%d..%d", uint32(p[0]), uint32(p[1]))
}

// CutFault makes links slower.
type CutFault struct {
	Links Names `yaml:"links" json:"links,omitzero" doc:"links, as for loss" default:"*"`
	Rate  Rate  `yaml:"rate" json:"rate,omitzero" doc:"bits per second; slower links keep their rate" required:"true"`
}

// DownFault takes links down.
type DownFault struct {
	Links Names `yaml:"links" json:"links,omitzero" doc:"links, as for loss" required:"true"`
}

// PauseFault makes adapters send PFC frames.
type PauseFault struct {
	Node     Names `yaml:"node" json:"node,omitzero" doc:"hosts: names, patterns h*, ranges h0..h7, expressions re:^h[01]$, labels label:rack1" required:"true"`
	Priority int   `yaml:"priority" json:"priority,omitzero" doc:"class, 0 to 7" default:"3"`
}

// StormFault makes adapters send PFC frames without a break.
type StormFault struct {
	Node     Names    `yaml:"node" json:"node,omitzero" doc:"hosts, as for pause" required:"true"`
	Priority int      `yaml:"priority" json:"priority,omitzero" doc:"class, 0 to 7" default:"3"`
	Gap      Duration `yaml:"gap" json:"gap,omitzero" doc:"time from one pause frame to the next" default:"10us"`
}

// NodeFault is a fault of nodes.
type NodeFault struct {
	Nodes Names `yaml:"nodes" json:"nodes,omitzero" doc:"names, patterns agg*, ranges h0..h7, expressions re:^agg[01]$, tiers tier:core, labels label:rack1" required:"true"`
}

// RoomFault reduces the memory that switches have for groups.
type RoomFault struct {
	Nodes Names `yaml:"nodes" json:"nodes,omitzero" doc:"switches, as for crash" required:"true"`
	Room  int   `yaml:"room" json:"room,omitzero" doc:"most groups; registered ones stay" default:"0"`
}

// SlowFault makes adapters slow to process received frames.
type SlowFault struct {
	Nodes Names `yaml:"nodes" json:"nodes,omitzero" doc:"hosts, as for crash" required:"true"`
	Rate  Rate  `yaml:"rate" json:"rate,omitzero" doc:"receive rate on the wire, in bits per second" required:"true"`
}

// LinkDelayDefault is the longest time for which a fault holds a frame back if it gives no
// delay of its own.
const LinkDelayDefault = 5 * vtime.Microsecond

// AgentCrashDefault is the time after which a process that has died is started again.
const AgentCrashDefault = 10 * vtime.Millisecond

// kind returns the kind of a fault and its settings; n is the number of kinds given.
func (f *Fault) kind() (k faults.Kind, settings any, n int) {
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		p := v.Field(i)
		if p.Kind() == reflect.Pointer && p.Type().Elem().Kind() == reflect.Struct && !p.IsNil() {
			k, settings = faults.Kind(v.Type().Field(i).Tag.Get("yaml")), p.Interface()
			n++
		}
	}
	return k, settings, n
}

// Kind returns the kind of the fault.
func (f *Fault) Kind() faults.Kind {
	k, _, _ := f.kind()
	return k
}

// OfFrames returns the settings of a fault that happens to single frames, or nil.
func (f *Fault) OfFrames() *LinkFault {
	_, settings, _ := f.kind()
	x, _ := settings.(*LinkFault)
	return x
}

// spec returns a fault's entry of a timeline: its links or nodes, found in the graph. id names its
// random streams.
func (f *Fault) spec(l *Lab, g *topo.Graph, id string) (faults.Spec, error) {
	k, settings, _ := f.kind()
	s := faults.Spec{ID: id, Kind: k, Text: f.Text()}
	s.From = vtime.Time(f.At)
	if f.For != nil {
		s.For = vtime.Duration(*f.For)
	}
	if f.Every != nil {
		s.Every = vtime.Duration(*f.Every)
	}
	if f.Probability < 1 {
		s.Probability = float64(f.Probability)
	}
	m := matcher{l, g}
	var err error
	switch x := settings.(type) {
	case *LinkFault:
		s.Ends, err = m.ends(x)
		if err == nil {
			s.Frames, err = m.impairment(k, x)
		}
	case *CutFault:
		s.Rate = int64(x.Rate)
		s.Links, err = m.links(x.Links)
	case *DownFault:
		s.Links, err = m.links(x.Links)
	case *PauseFault:
		s.Priority = uint8(x.Priority)
		s.Nodes, err = m.nodes(x.Node, 0)
	case *StormFault:
		s.Priority, s.Gap = uint8(x.Priority), vtime.Duration(x.Gap)
		s.Nodes, err = m.nodes(x.Node, 0)
	case *NodeFault:
		s.Nodes, err = m.nodes(x.Nodes, 0)
	case *RoomFault:
		s.Room = x.Room
		s.Nodes, err = m.nodes(x.Nodes, 0)
	case *SlowFault:
		s.Rate = int64(x.Rate)
		s.Nodes, err = m.nodes(x.Nodes, 0)
	case *ControlFault:
		s.Controllers, err = l.replicas(x.Controllers)
		s.Cut = cuts(s.Controllers, l.Replicas(), x.Direction)
	case *ControllerDown:
		s.Controllers, err = l.replicas(x.Controllers)
	}
	return s, err
}

// ends returns the directions that a fault of frames concerns, by their sending ports.
func (m matcher) ends(f *LinkFault) (ends []topo.End, err error) {
	links, err := m.links(f.Links)
	if err != nil {
		return nil, err
	}
	var senders []int
	if f.Sender != nil {
		if senders, err = m.nodes(f.Sender, 0); err != nil {
			return nil, err
		}
	}
	for _, k := range links {
		l := &m.g.Links[k]
		for _, d := range [2][2]topo.End{{l.A, l.B}, {l.B, l.A}} {
			from, to := m.g.Nodes[d[0].Node].Tier, m.g.Nodes[d[1].Node].Tier
			if f.Direction == "up" && from >= to || f.Direction == "down" && from <= to || senders != nil && !contains(senders, d[0].Node) {
				continue
			}
			ends = append(ends, d[0])
		}
	}
	if len(ends) == 0 {
		return nil, fmt.Errorf("direction %s and sender %q leave no direction of the links", f.Direction, []string(f.Sender))
	}
	return ends, nil
}

func contains(all []int, x int) bool {
	for _, y := range all {
		if x == y {
			return true
		}
	}
	return false
}

// impairment returns the effect of a fault of frames on each direction.
func (m matcher) impairment(k faults.Kind, f *LinkFault) (i faults.Impairment, err error) {
	rate := 1.0
	if f.Rate != nil {
		rate = float64(*f.Rate)
	}
	i.Delay, i.EveryNth = LinkDelayDefault, f.EveryNth
	if f.Delay != nil {
		i.Delay = vtime.Duration(*f.Delay)
	}
	if f.Nth != nil {
		i.Numbers = map[int]bool{}
		for _, n := range f.Nth {
			i.Numbers[n] = true
		}
	}
	if g := f.GilbertElliott; g != nil {
		i.Burst = &faults.Burst{ToBad: float64(g.ToBad), ToGood: float64(g.ToGood), LossBad: float64(g.LossBad), LossGood: float64(g.LossGood)}
	}
	switch k {
	case faults.KindLoss:
		i.Loss = rate
	case faults.KindCorrupt:
		i.Corrupt = rate
	case faults.KindTruncate:
		i.Truncate = rate
	case faults.KindDuplicate:
		i.Duplicate = rate
	case faults.KindReorder:
		i.Reorder = rate
	case faults.KindDelay:
		i.Hold = i.Delay
		if f.Jitter != nil {
			i.Jitter = vtime.Duration(*f.Jitter)
		}
	}
	if f.Frames != nil {
		p, err := m.match(f.Frames)
		if err != nil {
			return i, err
		}
		i.Match = &p
	}
	return i, nil
}
