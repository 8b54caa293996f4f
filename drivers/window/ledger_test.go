// SPDX-License-Identifier: Apache-2.0

package window

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// modelEvent is an event of the model. What follows from it depends on id alone, so that it is the same however the
// parts of a run overtake each other.
type modelEvent struct {
	at   vtime.Time
	id   uint64
	left int // events in a row that may still follow
}

func (e modelEvent) compare(o modelEvent) int {
	return cmp.Or(cmp.Compare(e.at, o.at), cmp.Compare(e.id, o.id))
}

// modelPart is a part of a model of a run: a process that handles events, and sends frames to its neighbours.
type modelPart struct {
	m     *modelRun
	id    int
	far   []Far
	queue []modelEvent // sorted
	in    [][]modelEvent
	last  []vtime.Time // by port: arrival of the last frame sent
	first []vtime.Time // by port, since the last report
	log   []modelEvent
	now   vtime.Time
	grant vtime.Time // of the round
	end   Grantee
	sent  int // frames of this round
}

// modelRun is a run: parts, and a coordinator with the ledger. It implements Parts and Schedule.
type modelRun struct {
	random *rand.Rand // the order in which parts run that run at the same time
	l      *Ledger
	parts  []*modelPart
	calls  []vtime.Time // of the fault timeline
	starts int          // frames that a part sends on all ports in a round

	looks    int        // times that programs may still resume after input from outside the lab
	look     vtime.Time // when they last did
	edge     vtime.Time
	injected [][]modelEvent // by part, its actions then
	back     int            // parts that had been granted more than that

	bounds  []vtime.Time // by part: the latest that it has been granted
	earlier int          // reports below all that was known of a part
	least   int          // of them, those that are the floor
	fullest int          // frames on one link

	liar   int                                                       // -1: none
	lie    func(p *modelPart, round int, next vtime.Time) vtime.Time // the liar's report in place of next
	harm   string                                                    // a frame of the liar that arrives before a bound
	rounds int
	failed error // of a round in which programs looked
}

// newModelRun makes a run of a seed on a random graph of links with like and unlike delays.
func newModelRun(seed uint64) *modelRun {
	random := rand.New(rand.NewPCG(seed, 17))
	parts := 2 + random.IntN(9)
	far := make([][]Far, parts)
	link := func(a, b int) {
		d := vtime.Duration(1 + random.IntN(4))
		switch random.IntN(3) {
		case 0:
			d = vtime.Duration(1 + random.IntN(200))
		case 1:
			d = vtime.Duration(500 + random.IntN(1000))
		}
		back := d
		if random.IntN(3) == 0 {
			back = vtime.Duration(1 + random.IntN(50))
		}
		far[a] = append(far[a], Far{Part: b, Port: len(far[b]), Delay: d})
		far[b] = append(far[b], Far{Part: a, Port: len(far[a]) - 1, Delay: back})
	}
	for i := 1; i < parts; i++ {
		link(random.IntN(i), i)
	}
	for range random.IntN(parts) {
		if a, b := random.IntN(parts), random.IntN(parts); a != b {
			link(a, b)
		}
	}
	names := make([]string, parts)
	m := &modelRun{random: rand.New(rand.NewPCG(seed, 18)), starts: 1 + random.IntN(3)*random.IntN(6), liar: -1, bounds: make([]vtime.Time, parts)}
	for i := range names {
		names[i] = fmt.Sprint("n", i)
		p := &modelPart{m: m, id: i, far: far[i], in: make([][]modelEvent, len(far[i])), last: make([]vtime.Time, len(far[i]))}
		for range far[i] {
			p.first = append(p.first, vtime.Never)
		}
		for range random.IntN(8) {
			p.add(modelEvent{vtime.Time(random.IntN(300)), random.Uint64(), 20 + random.IntN(60)})
		}
		if random.IntN(3) == 0 { // a timer, long after all else
			p.add(modelEvent{vtime.Time(1e5 + random.IntN(1e6)), random.Uint64(), 20 + random.IntN(60)})
		}
		m.parts = append(m.parts, p)
	}
	for range random.IntN(4) {
		m.calls = append(m.calls, vtime.Time(1+random.IntN(400)))
	}
	slices.Sort(m.calls)
	m.looks, m.injected = random.IntN(3)*random.IntN(5), make([][]modelEvent, parts)
	m.l = NewLedger(names, far)
	for i, p := range m.parts {
		m.l.Sent(i, p.next())
	}
	return m
}

func (m *modelRun) paths() (all []Path) {
	for _, p := range m.parts {
		for _, f := range p.far {
			all = append(all, Path{p.id, f.Part, f.Delay})
		}
	}
	return all
}

func (p *modelPart) add(e modelEvent) {
	i, _ := slices.BinarySearchFunc(p.queue, e, modelEvent.compare)
	p.queue = slices.Insert(p.queue, i, e)
}

// next is the part's next event; calls of the timeline are events of each part.
func (p *modelPart) next() vtime.Time {
	at := p.m.due()
	if len(p.queue) > 0 {
		at = min(at, p.queue[0].at)
	}
	return at
}

// handle handles the part's next event: others follow here, and frames leave.
func (p *modelPart) handle() {
	e := p.queue[0]
	p.queue = p.queue[1:]
	p.now = e.at
	p.log = append(p.log, e)
	p.follow(e)
}

func (p *modelPart) follow(e modelEvent) {
	if e.left == 0 {
		return
	}
	random := rand.New(rand.NewPCG(e.id, uint64(p.id)))
	for range 1 + random.IntN(2)*random.IntN(2) {
		x := modelEvent{e.at, random.Uint64(), e.left - 1 - random.IntN(3)*random.IntN(8)}
		x.left = max(x.left, 0)
		if random.IntN(4) == 0 {
			x.at = x.at.Add(vtime.Duration(random.IntN(300) + 10*random.IntN(2)*random.IntN(300)))
			p.add(x)
			continue
		}
		port := random.IntN(len(p.far))
		x.at = max(x.at.Add(p.far[port].Delay), p.last[port].Add(vtime.Duration(random.IntN(30))))
		p.last[port], p.first[port] = x.at, min(p.first[port], x.at)
		f := p.far[port]
		to := p.m.parts[f.Part]
		if x.at < p.m.bounds[f.Part] && p.m.harm == "" {
			p.m.harm = fmt.Sprintf("n%d sends a frame that arrives at n%d at %v, which has been granted %v", p.id, f.Part, x.at, p.m.bounds[f.Part])
		}
		to.in[f.Port] = append(to.in[f.Port], x)
		p.m.fullest = max(p.m.fullest, len(to.in[f.Port]))
		p.sent++
	}
}

// take takes all frames that are announced now.
func (p *modelPart) take() error {
	for port := range p.in {
		for _, f := range p.in[port] {
			if soonest := p.end.Soonest(); f.at < soonest {
				return fmt.Errorf("node n%d says that a frame arrives at n%d at %v, which takes none before %v", p.far[port].Part, p.id, f.at, soonest)
			}
			p.add(f)
		}
		p.in[port] = nil
	}
	return nil
}

// Next implements Parts.
func (m *modelRun) Next(next []vtime.Time) {
	if m.looks > 0 && (m.random.IntN(8) == 0 || m.idle()) {
		m.lookOutside()
	}
	for i := range m.parts {
		next[i] = m.l.Next(i)
	}
}

func (m *modelRun) due() vtime.Time {
	if len(m.calls) == 0 {
		return vtime.Never
	}
	return m.calls[0]
}

func (m *modelRun) idle() bool {
	for i := range m.parts {
		if m.l.Next(i) != vtime.Never {
			return false
		}
	}
	return true
}

// lookOutside has programs of some parts check their conditions, and some of these resume, at an instant that no part has passed.
// Their events belong to the lab as if they had been known from the start.
func (m *modelRun) lookOutside() {
	m.looks--
	for _, p := range m.parts {
		m.edge = max(m.edge, p.now)
	}
	m.edge++
	at, asked := m.edge, map[int]bool{}
	for i := range m.parts {
		if m.random.IntN(2) == 0 {
			m.Grant(i, 0)
			m.l.Allow(i, at)
			asked[i] = true
		}
	}
	found := false
	err := m.round(func(p *modelPart) {
		if asked[p.id] && m.random.IntN(2) == 0 {
			e := modelEvent{at, uint64(at)<<16 | uint64(p.id), 20}
			p.end.Allow(at)
			p.add(e)
			m.injected[p.id] = append(m.injected[p.id], e)
			found = true
		}
	})
	if err != nil && m.failed == nil {
		m.failed = err
	}
	if !found {
		return
	}
	m.look = at
	for i := range m.bounds {
		if m.bounds[i] > at {
			m.back++
			m.bounds[i] = at
		}
	}
}

// Grant implements Parts.
func (m *modelRun) Grant(part int, bound vtime.Time) {
	m.l.Grant(part)
	m.parts[part].grant, m.bounds[part] = bound, max(m.bounds[part], bound)
}

// Round implements Parts: parts run at the same time, event by event in a random order.
func (m *modelRun) Round() error { return m.round(func(*modelPart) {}) }

func (m *modelRun) round(call func(p *modelPart)) error {
	if m.failed != nil {
		return m.failed
	}
	m.rounds++
	for i := range m.parts {
		if m.l.Late(i) || !m.l.parts[i].held && m.random.IntN(20) == 0 { // when it takes frames is its own affair
			m.Grant(i, 0)
		}
	}
	m.l.Run()
	running, began := slices.Clone(m.l.Granted()), map[int]bool{}
	for len(running) > 0 {
		k := m.random.IntN(len(running))
		p := m.parts[running[k]]
		switch {
		case !began[p.id]:
			began[p.id] = true
			p.sent = 0
			p.end.Begin(m.l.Floor(p.id), m.look)
			if err := p.take(); err != nil {
				return err
			}
			call(p)
		case p.sent < m.starts && len(p.queue) > 0 && p.queue[0].at < p.grant:
			p.handle()
		default:
			running = slices.Delete(running, k, k+1)
		}
	}
	for _, i := range m.l.Granted() {
		p := m.parts[i]
		next := p.next()
		p.end.Advanced(p.grant, next)
		if next < m.l.From(i) {
			m.earlier++
			if next == m.l.parts[i].floor {
				m.least++
			}
		}
		if i == m.liar {
			next = m.lie(p, m.rounds, next)
		}
		if err := m.l.Report(i, next, func(port int) vtime.Time { return p.first[port] }); err != nil {
			return err
		}
		for port := range p.first {
			p.first[port] = vtime.Never
		}
	}
	m.l.End()
	if m.harm != "" {
		return fmt.Errorf("the ledger has let through that %s", m.harm)
	}
	return nil
}

// Meet implements Parts.
func (m *modelRun) Meet(at vtime.Time) (*Census, error) {
	return &Census{}, m.step(at, func(*modelPart) {})
}

// Call implements Parts: at each part something begins.
func (m *modelRun) Call(at vtime.Time, _ Verdict) (*Census, error) {
	return &Census{}, m.step(at, func(p *modelPart) { p.follow(modelEvent{at, m.callID(at), 20}) })
}

func (m *modelRun) step(at vtime.Time, call func(p *modelPart)) error {
	starts := m.starts
	defer func() { m.starts = starts }()
	m.starts = 1 << 20 // such a round is not interrupted
	for i := range m.parts {
		m.Grant(i, at+1)
		m.parts[i].now = at
	}
	return m.round(call)
}

// modelSchedule is the timeline of a run.
type modelSchedule struct{ m *modelRun }

func (s modelSchedule) Next() vtime.Time { return s.m.due() }

func (s modelSchedule) Call(*Census) (Verdict, error) {
	s.m.calls = s.m.calls[1:]
	return Make, nil
}

// callID is of the call that was made last.
func (m *modelRun) callID(at vtime.Time) uint64 { return uint64(at)<<8 | uint64(len(m.calls)) }

// Reply implements Parts. No rank asks for anything.
func (m *modelRun) Reply(vtime.Time, outofband.Reply) {}

// SetEntry implements Parts.
func (m *modelRun) SetEntry(vtime.Time, wire.MulticastEntry) {}

// run runs the model, and returns the events of each part, in order.
func (m *modelRun) run() ([][]modelEvent, error) {
	channel := NewChannel(Order{Bits: 1}, 1, outofband.NewServer(0, nil, outofband.Lab{}))
	_, err := NewPlan(len(m.parts)+1, m.paths()).Drain(m, channel, modelSchedule{m})
	var logs [][]modelEvent
	for _, p := range m.parts {
		logs = append(logs, p.log)
	}
	if err == nil {
		err = m.failed
	}
	return logs, err
}

// alone runs the model one event after the other, as undivided parts handle them.
func (m *modelRun) alone(injected [][]modelEvent) (logs [][]modelEvent) {
	for i, all := range injected {
		for _, e := range all {
			m.parts[i].add(e)
		}
	}
	for {
		var least *modelPart
		for _, p := range m.parts {
			if err := p.take(); err != nil {
				panic(err) // the bounds are 0
			}
			if len(p.queue) > 0 && (least == nil || p.queue[0].at < least.queue[0].at) {
				least = p
			}
		}
		if call := m.due(); call != vtime.Never && (least == nil || least.queue[0].at > call) {
			m.calls = m.calls[1:]
			for _, p := range m.parts {
				p.follow(modelEvent{call, m.callID(call), 20})
			}
			continue
		}
		if least == nil {
			break
		}
		least.handle()
	}
	for _, p := range m.parts {
		logs = append(logs, p.log)
	}
	return logs
}

const modelRuns = 500

// TestLedger: on random graphs, some of whose parts have a timer far away, whatever overtakes what within a round, all reports of honest parts pass, no frame arrives before a bound, and the parts
// handle the same events as undivided; so also where programs resume after input from outside the lab. In some runs a part reports an instant below all known ones, down to the floor itself: no
// higher floor would do.
func TestLedger(t *testing.T) {
	earlier, least, events, back := 0, 0, 0, 0
	for seed := range uint64(modelRuns) {
		m := newModelRun(seed)
		calls := len(m.calls)
		got, err := m.run()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := newModelRun(seed).alone(m.injected)
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("seed %d: part %d handles %d events %.200v, undivided %d events %.200v", seed, i, len(got[i]), got[i], len(want[i]), want[i])
			}
			events += len(want[i])
		}
		// Each round brings one event's frames more than starts at the most, and the last such round is the one in which the part takes them.
		if most := (behindMax + 1) * (m.starts + 1); m.fullest > most && calls == 0 {
			t.Fatalf("seed %d: %d frames were on a link, %d may be", seed, m.fullest, most)
		}
		earlier, least, back = earlier+m.earlier, least+m.least, back+m.back
	}
	t.Logf("%d events; %d reports below what was known, %d of them the least that can be; %d parts had been granted more than where programs went on", events, earlier, least, back)
	if back < modelRuns/10 {
		t.Errorf("%d parts had been granted more than where programs went on: the model does not try what Grantee.Begin is for", back)
	}
	if earlier < modelRuns/10 || least == 0 {
		t.Errorf("%d reports were below what was known of a part, %d the least that can be: the model does not try what the floor is for", earlier, least)
	}
}

// TestLedgerLies: a part that reports an impossible value ends the run in that round, with an error that names it. One that
// conceals events is stopped before a frame of it harms another part.
func TestLedgerLies(t *testing.T) {
	const names = "node n%d says that"
	for name, lie := range map[string]struct {
		always bool // each such lie is noticed
		tell   func(m *modelRun, p *modelPart, by vtime.Duration, next vtime.Time) vtime.Time
	}{
		"an event below the floor": {true, func(m *modelRun, p *modelPart, by vtime.Duration, _ vtime.Time) vtime.Time {
			return m.l.parts[p.id].floor.Add(-by)
		}},
		"a frame too soon": {true, func(m *modelRun, p *modelPart, by vtime.Duration, next vtime.Time) vtime.Time {
			port := m.random.IntN(len(p.far))
			p.first[port] = m.l.From(p.id).Add(p.far[port].Delay - by)
			return next
		}},
		"events concealed": {false, func(_ *modelRun, _ *modelPart, by vtime.Duration, next vtime.Time) vtime.Time {
			return next.Add(50 * by)
		}},
		"all events concealed": {false, func(*modelRun, *modelPart, vtime.Duration, vtime.Time) vtime.Time { return vtime.Never }},
		"no lie, but less than known": {false, func(m *modelRun, p *modelPart, _ vtime.Duration, next vtime.Time) vtime.Time {
			return min(next, m.l.parts[p.id].floor)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			lies, noticed, harmful := 0, 0, 0
			for seed := range uint64(modelRuns) {
				m := newModelRun(seed)
				random := rand.New(rand.NewPCG(seed, 19))
				m.liar = random.IntN(len(m.parts))
				begin, told := random.IntN(60), 0
				m.lie = func(p *modelPart, round int, next vtime.Time) vtime.Time {
					if round < begin || told > 0 && random.IntN(4) > 0 {
						return next
					}
					told = round
					return lie.tell(m, p, vtime.Duration(1+random.IntN(3)), next)
				}
				_, err := m.run()
				if told == 0 {
					continue
				}
				lies++
				switch named := err != nil && strings.HasPrefix(err.Error(), fmt.Sprintf(names, m.liar)); {
				case err != nil && !named:
					t.Fatalf("seed %d: %v; the liar is n%d", seed, err, m.liar)
				case lie.always && (err == nil || told != m.rounds):
					t.Fatalf("seed %d: n%d lies in round %d, and round %d ends with %v", seed, m.liar, told, m.rounds, err)
				case named:
					noticed++
				}
				if m.harm != "" {
					harmful++
				}
			}
			t.Logf("%d runs with lies, %d noticed, in %d of them a frame would have done harm", lies, noticed, harmful)
			honest := strings.HasPrefix(name, "no lie")
			if lies < modelRuns/4 || honest != (noticed == 0) || strings.HasPrefix(name, "events") && harmful == 0 {
				t.Errorf("%d runs with lies, %d noticed, %d harmful: the model does not try what it is for", lies, noticed, harmful)
			}
		})
	}
}

// TestLedgerRequest: a request on the out-of-band channel arrives no sooner than its delay after the part's first event of the round.
func TestLedgerRequest(t *testing.T) {
	l := NewLedger([]string{"a"}, [][]Far{nil})
	l.Sent(0, 100)
	l.Grant(0)
	l.Run()
	if err := l.Check(0, 107, 7); err != nil {
		t.Error(err)
	}
	if err := l.Check(0, 106, 7); err == nil {
		t.Error("a request that was sent before the round passes")
	}
}
