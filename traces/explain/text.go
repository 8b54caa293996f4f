// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// ListSchema names the format of the list of messages as JSON.
const ListSchema = "mcastlab/messages/v1"

// List is the messages of a run.
type List struct {
	Schema   string     `json:"schema"`
	Messages []*Message `json:"messages"`
	Gaps     []string   `json:"gaps,omitempty"`
	Cut      int        `json:"lines_cut,omitempty"`
}

// List returns all messages.
func (t *Trace) List() *List {
	l := &List{Schema: ListSchema, Messages: t.Messages, Cut: t.Cut}
	l.Gaps = t.gaps()
	return l
}

// Slowest returns the n messages of the list with the longest JCT, the slowest first; of equal ones the first. Messages that reached
// no receiver come before all others: they never ended. A negative n is 0.
func (l *List) Slowest(n int) *List {
	all := slices.Clone(l.Messages)
	slices.SortStableFunc(all, func(a, b *Message) int {
		if (a.JCT < 0) != (b.JCT < 0) {
			return cmp.Compare(a.JCT, b.JCT)
		}
		return cmp.Compare(b.JCT, a.JCT)
	})
	some := *l
	some.Messages = all[:min(max(n, 0), len(all))]
	return &some
}

// gaps lists the missing parts of the trace.
func (t *Trace) gaps() (all []string) {
	if t.Incomplete != "" {
		all = append(all, t.Incomplete)
	}
	for _, g := range t.Gaps {
		all = append(all, gap(g.Node, g.At, g.Text))
	}
	return all
}

func gap(node string, at int64, why string) string {
	return fmt.Sprintf("from %s us of lab time on nothing is known of %s (%s)", us(at), node, why)
}

// table writes lines of cells, aligned, without blanks at their ends.
func table(w io.Writer, align uint, rows [][]string) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', align)
	for _, r := range rows {
		// Both writers below write to memory: there is no error.
		_, _ = io.WriteString(tw, strings.Join(r, "\t")+"\t\n")
	}
	_ = tw.Flush()
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// warn writes a warning for each missing part of a trace.
func warn(w io.Writer, gaps []string, cut int) error {
	for _, g := range gaps {
		if _, err := fmt.Fprintf(w, "GAP: %s\n", g); err != nil {
			return err
		}
	}
	if cut > 0 {
		if _, err := fmt.Fprintf(w, "GAP: %d lines beyond the size limit were left out\n", cut); err != nil {
			return err
		}
	}
	return nil
}

// WriteText writes the list as a table.
func (l *List) WriteText(w io.Writer) error {
	rows := [][]string{{"ID", "Workload", "Scheme", "Bytes", "Iteration", "Source", "Posted(us)", "JCT(us)", "Worst receiver"}}
	for _, m := range l.Messages {
		rows = append(rows, []string{
			fmt.Sprint(m.ID), dash(m.Workload), m.Scheme, fmt.Sprint(m.Bytes), number(m.Iteration), m.Source, us(m.Start), usOr(m.JCT), dash(m.Worst),
		})
	}
	if err := warn(w, l.Gaps, l.Cut); err != nil {
		return err
	}
	return table(w, tabwriter.AlignRight, rows)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// usOr is us; a time that never was is a dash.
func usOr(ps int64) string {
	if ps < 0 {
		return "-"
	}
	return us(ps)
}

// many writes a number and its noun, in the plural unless the number is 1.
func many(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// title returns the name of a message in a heading.
func (m *Message) title() string {
	s := fmt.Sprintf("Message %d: ", m.ID)
	if m.Workload != "" {
		s += m.Workload + " "
	}
	s += fmt.Sprintf("%s, %d bytes", m.Scheme, m.Bytes)
	if m.Iteration > 0 {
		s += fmt.Sprintf(", iteration %d", m.Iteration)
	}
	return s + fmt.Sprintf(", from %s to %s, posted at %s us", m.Source, many(len(m.Receivers), "receiver"), us(m.Start))
}

// WriteText writes the story: a summary, then one line per event, with times from when the
// message began.
func (s *Story) WriteText(w io.Writer) error {
	m := s.Message
	end := "No receiver had all of it."
	if m.JCT >= 0 {
		end = fmt.Sprintf("JCT %s us: %s was the last receiver.", us(m.JCT), m.Worst)
	}
	if m.Sourced >= 0 {
		end += fmt.Sprintf(" The source was done after %s us.", us(m.Sourced))
	}
	t := s.Totals
	_, err := fmt.Fprintf(w, "%s\n%s\n%d packets in %s; %d sent, %d of them again; %d lost; NAKs %d, pauses %d, CNPs %d\n",
		m.title(), end, m.Packets, many(m.Requests, "request"), t.Sent, t.Resent, t.Lost, t.Naks, t.Pauses, t.CNPs)
	if err != nil {
		return err
	}
	if err := warn(w, s.Gaps, 0); err != nil {
		return err
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	width, node, what := len("Time(us)"), len("Node"), len("Event")
	for _, e := range s.Events {
		width, node, what = max(width, len(us(e.At-m.Start))), max(node, len(e.Node)), max(what, len(e.What))
	}
	if _, err := fmt.Fprintf(w, "%*s  %-*s  %-*s  Details\n", width, "Time(us)", node, "Node", what, "Event"); err != nil {
		return err
	}
	for _, e := range s.Events {
		if _, err := fmt.Fprintf(w, "%*s  %-*s  %-*s  %s\n", width, us(e.At-m.Start), node, e.Node, what, e.What, e.Text); err != nil {
			return err
		}
	}
	return nil
}

// ExplainSchema names the format of explanations as JSON.
const ExplainSchema = "mcastlab/explain/v1"

// Times are the parts of a time in whole nanoseconds; they sum to the whole.
type Times struct {
	Serialisation  int64 `json:"serialisation_ns"`
	Queueing       int64 `json:"queueing_ns"`
	Propagation    int64 `json:"propagation_ns"`
	Pause          int64 `json:"pause_ns"`
	Retransmission int64 `json:"retransmission_ns"`
	RNR            int64 `json:"rnr_ns,omitempty"`
	Host           int64 `json:"host_ns"`
	Straggler      int64 `json:"straggler_ns"`
	Unknown        int64 `json:"unknown_ns,omitempty"`
	JCT            int64 `json:"jct_ns"` // their sum
}

func timesOf(p Parts) Times {
	n := p.Nanoseconds()
	return Times{n[Serialisation], n[Queueing], n[Propagation], n[Pause], n[Retransmission], n[RNR], n[Host], n[Straggler], n[Unknown], nanoseconds(p.Sum())}
}

// Row is a row of a table of explanations.
type Row struct {
	Workload string `json:"workload,omitempty"`
	Scheme   string `json:"scheme"`
	Bytes    int64  `json:"bytes"`
	Messages int    `json:"messages"` // whose times are summed
	Unended  int    `json:"unended,omitempty"`
	Times    Times  `json:"times"` // of all together
	parts    Parts
}

// Table is the explanation of all messages of a run, summed by scheme and size.
type Table struct {
	Schema string   `json:"schema"`
	Rows   []*Row   `json:"rows"`
	Gaps   []string `json:"gaps,omitempty"`
	Cut    int      `json:"lines_cut,omitempty"`
}

// Table explains all messages.
func (t *Trace) Table() *Table {
	out := &Table{Schema: ExplainSchema, Gaps: t.gaps(), Cut: t.Cut}
	type key struct {
		workload, scheme string
		bytes            int64
	}
	rows := map[key]*Row{}
	until, over := t.steps+t.stepsMax, 0
	for _, m := range t.Messages {
		k := key{m.Workload, m.Scheme, m.Bytes}
		r := rows[k]
		if r == nil {
			r = &Row{Workload: m.Workload, Scheme: m.Scheme, Bytes: m.Bytes}
			rows[k] = r
			out.Rows = append(out.Rows, r)
		}
		if t.steps > until {
			over++
			continue
		}
		e, ok := t.Explain(m)
		if !ok {
			r.Unended++
			continue
		}
		r.Messages++
		for i, v := range e.Parts {
			r.parts[i] += v
		}
	}
	for _, r := range out.Rows {
		r.Times = timesOf(r.parts)
	}
	if over > 0 {
		out.Gaps = append(out.Gaps, fmt.Sprintf("%d of %d messages, the last ones, are not explained: too many packets wait behind each other in this run. "+
			"mcastlab trace --explain --message N explains one", over, len(t.Messages)))
	}
	return out
}

// stepsMax bounds the work for a table: packets and completions on critical paths, of all messages together. It takes
// about ten seconds.
const stepsMax = 20_000_000

// WriteText writes the table: mean times of a message. A part that no row has is left out.
func (t *Table) WriteText(w io.Writer) error {
	rows := [][]string{{"Workload", "Scheme", "Bytes", "Messages", "JCT(us)"}}
	var all Parts
	for _, r := range t.Rows {
		for p, v := range r.parts {
			all[p] += v
		}
	}
	for p := range partCount {
		if all[p] > 0 {
			rows[0] = append(rows[0], p.String())
		}
	}
	for _, r := range t.Rows {
		n, sum := int64(max(1, r.Messages)), r.parts.Sum()
		line := []string{dash(r.Workload), r.Scheme, fmt.Sprint(r.Bytes), fmt.Sprint(r.Messages), us(sum / n)}
		for p := range partCount {
			if all[p] > 0 {
				line = append(line, share(r.parts[p]/n, r.parts[p], sum))
			}
		}
		rows = append(rows, line)
	}
	if err := warn(w, t.Gaps, t.Cut); err != nil {
		return err
	}
	return table(w, tabwriter.AlignRight, rows)
}

// share formats a time and its share of the whole.
func share(ps, part, sum int64) string {
	if part == 0 {
		return "-"
	}
	return fmt.Sprintf("%s %5.1f%%", us(ps), 100*float64(part)/float64(max(1, sum)))
}

// One is the explanation of one message, as it is printed.
type One struct {
	Schema  string   `json:"schema"`
	Message *Message `json:"message"`
	Times   Times    `json:"times"`
	Path    []Step   `json:"critical_path"`
	Gaps    []string `json:"gaps,omitempty"`
	parts   Parts
}

// One explains a message; nil if no receiver ever had it.
func (t *Trace) One(m *Message) *One {
	e, ok := t.Explain(m)
	if !ok {
		return nil
	}
	return &One{Schema: ExplainSchema, Message: m, Times: timesOf(e.Parts), Path: e.Path, Gaps: t.gaps(), parts: e.Parts}
}

// WriteText writes the parts, then the critical path.
func (o *One) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n", o.Message.title()); err != nil {
		return err
	}
	if err := warn(w, o.Gaps, 0); err != nil {
		return err
	}
	ns, sum := o.parts.Nanoseconds(), o.parts.Sum()
	rows := [][]string{{"", "Time(ns)", "Share"}}
	for p := range partCount {
		if p != Unknown && p != RNR || o.parts[p] > 0 {
			rows = append(rows, []string{p.String(), fmt.Sprint(ns[p]), fmt.Sprintf("%.2f%%", 100*float64(o.parts[p])/float64(max(1, sum)))})
		}
	}
	rows = append(rows, []string{"JCT", fmt.Sprint(nanoseconds(sum)), "100.00%"})
	if err := table(w, tabwriter.AlignRight, rows); err != nil {
		return err
	}
	return writePath(w, o.Message, o.Path)
}
