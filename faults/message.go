// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/strictjson"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Schema names the format in which faults travel between processes and in which controllers store
// them. A change of the meaning of a message changes the name.
const Schema = "mcastlab/fault/v1"

// message is the JSON form of a Spec, with names in place of numbers. The ID and Text of the Spec
// travel beside it. Instants and durations are in picoseconds.
type message struct {
	Schema      string         `json:"schema"`
	Kind        Kind           `json:"kind"`
	From        vtime.Time     `json:"from,omitempty"`
	For         vtime.Duration `json:"for,omitempty"`
	Every       vtime.Duration `json:"every,omitempty"`
	Probability float64        `json:"probability,omitempty"`
	Ends        []string       `json:"ends,omitempty"` // sending ports: leaf0:3
	Frames      *framesMessage `json:"frames,omitempty"`
	Links       []string       `json:"links,omitempty"` // h0:0-leaf0:0
	Nodes       []string       `json:"nodes,omitempty"`
	Rate        int64          `json:"rate,omitempty"`
	Priority    uint8          `json:"priority,omitempty"`
	Gap         vtime.Duration `json:"gap,omitempty"`
	Room        int            `json:"room,omitempty"`
	Controllers []string       `json:"controllers,omitempty"`
	Cut         []wayMessage   `json:"cut,omitempty"`
}

type wayMessage struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// framesMessage is the JSON form of an Impairment.
type framesMessage struct {
	Loss      float64        `json:"loss,omitempty"`
	Corrupt   float64        `json:"corrupt,omitempty"`
	Truncate  float64        `json:"truncate,omitempty"`
	Duplicate float64        `json:"duplicate,omitempty"`
	Reorder   float64        `json:"reorder,omitempty"`
	Burst     *burstMessage  `json:"burst,omitempty"`
	Numbers   []int          `json:"numbers,omitempty"`
	EveryNth  int            `json:"everyNth,omitempty"`
	Delay     vtime.Duration `json:"delay,omitempty"`
	Hold      vtime.Duration `json:"hold,omitempty"`
	Jitter    vtime.Duration `json:"jitter,omitempty"`
	Match     *matchMessage  `json:"match,omitempty"`
}

type burstMessage struct {
	ToBad    float64 `json:"toBad"`
	ToGood   float64 `json:"toGood"`
	LossGood float64 `json:"lossGood"`
	LossBad  float64 `json:"lossBad"`
}

type matchMessage struct {
	Classes []string  `json:"classes,omitempty"`
	OpCodes []string  `json:"opcodes,omitempty"`
	From    []string  `json:"from,omitempty"` // hosts
	To      []string  `json:"to,omitempty"`
	Group   bool      `json:"group,omitempty"`
	QP      wire.QPN  `json:"qp,omitempty"`
	PSNs    *[2]int64 `json:"psns,omitempty"` // first and last
}

// Encode returns the message of a fault, which holds the fields of its Spec but ID and Text. It
// returns an error if the fault selects frames by a MatchFunc.
func Encode(s *Spec, g *topo.Graph) ([]byte, error) {
	m := message{
		Schema: Schema, Kind: s.Kind, From: s.From, For: s.For, Every: s.Every, Probability: s.Probability,
		Rate: s.Rate, Priority: s.Priority, Gap: s.Gap, Room: s.Room, Controllers: s.Controllers,
	}
	for _, e := range s.Ends {
		m.Ends = append(m.Ends, g.PortName(e))
	}
	for _, l := range s.Links {
		m.Links = append(m.Links, g.LinkName(l))
	}
	for _, n := range s.Nodes {
		m.Nodes = append(m.Nodes, g.Nodes[n].Name)
	}
	for _, w := range s.Cut {
		m.Cut = append(m.Cut, wayMessage(w))
	}
	var err error
	if s.Kind.OfFrames() {
		m.Frames, err = encodeFrames(&s.Frames, g)
	}
	var b []byte
	if err == nil {
		b, err = json.Marshal(m)
	}
	if err != nil {
		return nil, fmt.Errorf("write fault %s: %w", s.ID, err)
	}
	return b, nil
}

func encodeFrames(i *Impairment, g *topo.Graph) (*framesMessage, error) {
	m := &framesMessage{
		Loss: i.Loss, Corrupt: i.Corrupt, Truncate: i.Truncate, Duplicate: i.Duplicate, Reorder: i.Reorder,
		EveryNth: i.EveryNth, Delay: i.Delay, Hold: i.Hold, Jitter: i.Jitter,
	}
	if b := i.Burst; b != nil {
		m.Burst = &burstMessage{ToBad: b.ToBad, ToGood: b.ToGood, LossGood: b.LossGood, LossBad: b.LossBad}
	}
	for n := range i.Numbers { // sorted below
		m.Numbers = append(m.Numbers, n)
	}
	slices.Sort(m.Numbers)
	if i.Match == nil {
		return m, nil
	}
	p, ok := i.Match.(*Match)
	if !ok {
		return nil, errors.New("it selects frames by a function, which no message can carry")
	}
	var err error
	m.Match, err = encodeMatch(p, g)
	return m, err
}

func encodeMatch(p *Match, g *topo.Graph) (m *matchMessage, err error) {
	m = &matchMessage{Group: p.Group, QP: p.QP}
	for k, name := range classNames {
		if p.Classes&(1<<k) != 0 {
			m.Classes = append(m.Classes, name)
		}
	}
	for _, op := range p.OpCodes {
		m.OpCodes = append(m.OpCodes, op.String())
	}
	if m.From, err = hostNames(p.Src, g); err != nil {
		return nil, err
	}
	if m.To, err = hostNames(p.Dst, g); err != nil {
		return nil, err
	}
	if p.PSN {
		m.PSNs = &[2]int64{int64(p.First), int64(p.Last)}
	}
	return m, nil
}

func hostNames(ips []uint32, g *topo.Graph) (names []string, err error) {
	hosts, err := g.HostsAt(ips)
	for _, h := range hosts {
		names = append(names, g.Nodes[h].Name)
	}
	return names, err
}

// Decode reads the message of a fault of the lab with the given graph and controllers. It returns
// an error for another schema, an unknown field, a name that the lab does not have, and a number
// out of range. The ID and Text of the Spec are empty.
func Decode(b []byte, g *topo.Graph, controllers []string) (s Spec, err error) {
	var of struct {
		Schema string `json:"schema"`
	}
	var m message
	if err = json.Unmarshal(b, &of); err == nil && of.Schema != Schema {
		err = fmt.Errorf("the schema is %q, and this version reads %q", of.Schema, Schema)
	}
	if err == nil {
		err = strictjson.Decode(b, &m)
	}
	if err == nil {
		err = m.check()
	}
	if err == nil {
		s, err = m.spec(g, controllers)
	}
	if err != nil {
		return Spec{}, fmt.Errorf("read fault: %w", err)
	}
	return s, nil
}

// check refuses numbers with which no timeline can work.
func (m *message) check() error {
	frames := m.Frames
	if frames == nil {
		frames = &framesMessage{}
	}
	burst := frames.Burst
	if burst == nil {
		burst = &burstMessage{}
	}
	for _, p := range []float64{m.Probability, frames.Loss, frames.Corrupt, frames.Truncate, frames.Duplicate, frames.Reorder,
		burst.ToBad, burst.ToGood, burst.LossGood, burst.LossBad} {
		if p < 0 || p > 1 {
			return fmt.Errorf("%v is not a probability", p)
		}
	}
	for _, d := range []vtime.Duration{m.For, m.Every, m.Gap, frames.Delay, frames.Hold, frames.Jitter} {
		if d < 0 || d > vtime.SpanMax {
			return fmt.Errorf("a duration of %d ps is below 0 or above %d", d, int64(vtime.SpanMax))
		}
	}
	switch {
	case !slices.Contains(kinds, m.Kind):
		return fmt.Errorf("there is no kind %q", m.Kind)
	case m.Kind.OfFrames() && m.Frames == nil:
		return fmt.Errorf("kind %s needs the field frames", m.Kind)
	case !m.Kind.OfFrames() && m.Frames != nil:
		return fmt.Errorf("kind %s has no field frames", m.Kind)
	case m.From < 0 || m.From == vtime.Never:
		return fmt.Errorf("the fault begins at %d ps, which is out of range", m.From)
	case m.Priority > 7:
		return fmt.Errorf("priority %d is not 0 to 7", m.Priority)
	case m.Kind == KindPauseStorm && m.Gap == 0:
		return errors.New("a pause-storm has no gap between its frames")
	case m.Rate < 0 || m.Rate == 0 && (m.Kind == KindRateCut || m.Kind == KindSlowReceiver):
		return fmt.Errorf("%d bit/s is not a rate", m.Rate)
	case m.Room < 0 || frames.EveryNth < 0:
		return fmt.Errorf("room %d or number %d is below 0", m.Room, frames.EveryNth)
	}
	return nil
}
