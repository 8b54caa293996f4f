// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Count is the number of results with each verdict, and of those that have a prediction with two ends.
type Count struct {
	By       map[Verdict]int
	All      int
	TwoSided int // results with a PRED line that could miss on either side, and was measured
	Beside   int // lines that do not count
}

// Tally counts outcomes.
func Tally(all []Outcome) Count {
	c := Count{By: map[Verdict]int{}, All: len(all)}
	for i := range all {
		c.By[all[i].Verdict]++
		for k := range all[i].Lines {
			if all[i].Lines[k].Beside != "" {
				c.Beside++
			}
		}
		if slices.ContainsFunc(all[i].Lines, func(l LineOutcome) bool {
			return l.Basis == Predicted && l.TwoSided() && l.Beside == "" && !math.IsNaN(l.Got)
		}) {
			c.TwoSided++
		}
	}
	return c
}

// Sentence returns the count in words.
func (c *Count) Sentence() string {
	var parts []string
	for _, v := range []Verdict{InBand, Off, Partly, Pending, Untried, Cannot, Amiss} {
		if n := c.By[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	s := fmt.Sprintf("%d results: %s. %d have a prediction that could miss on either side.", c.All, strings.Join(parts, ", "), c.TwoSided)
	if c.Beside > 0 {
		s += fmt.Sprintf(" %d lines are printed beside a result and do not count.", c.Beside)
	}
	return s
}

// preface explains the page, in both of its forms.
const preface = "Each result of the four papers, what the paper says of it, and what this tree measures. " +
	"A line's band was written before the run that is held to it. The lab beside it can be run alone (mcastlab run examples/papers/LAB.mcl.yml) " +
	"and the result, too (mcastlab reproduce --full ID); what each lab is made of is at the end. F-1 to F-24 are the closed forms of docs/ledgers/rules/formulas.md. " +
	"PRED: no parameter was chosen so that the line holds. CAL: one was, so the line reproduces nothing; the parameters say which. " +
	"A figure of a paper that contradicts those it rests on is printed beside the closed form, with the reason, and does not count. " +
	"ARITH: computed from the tree's own code, without a run. " +
	"A shape, whose band has one end, is tried once more where its cause is gone, and must not be there, to a thousandth; " +
	"a line that is only for that is CONTROL. Times are of the event clock, so every machine gets the same figures."

// Got returns a line's figure as text.
func (l *LineOutcome) got() string {
	switch {
	case !math.IsNaN(l.Got):
		return strings.TrimSpace(number(l.Got) + " " + l.Unit)
	case l.Lack != "":
		return "none: " + l.Lack
	}
	return "not run"
}

func (l *LineOutcome) mark() string {
	switch {
	case l.Beside != "":
		return "beside"
	case l.Basis == Broken && l.OK:
		return "breaks it"
	case l.Basis == Broken && !math.IsNaN(l.Got):
		return "does not break it"
	case l.OK:
		return "yes"
	case math.IsNaN(l.Got) && l.Lack == "":
		return "-"
	}
	return "no"
}

// class is that of the mark in the page's style sheet.
func (l *LineOutcome) class() string {
	if m := l.mark(); l.Basis != Broken {
		return m
	}
	if l.OK {
		return "yes"
	}
	return "no"
}

// band returns the line's band, and the reason if the line is out of it.
func (l *LineOutcome) band() string {
	if l.Control == "" {
		return l.Band()
	}
	return fmt.Sprintf("%s; control: %s", l.Band(), l.Control)
}

// labs names the labs that a line's figure comes from.
func (l *LineOutcome) labs() (names []string) {
	for _, q := range l.asked() {
		names = append(names, q.Lab)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// from names where a line's figure comes from.
func (l *LineOutcome) from() string { return cmp.Or(l.Compute, strings.Join(l.labs(), ", ")) }

// links is from, with links to the labs.
func (l *LineOutcome) links(at Place) string {
	if l.Compute != "" {
		return "`" + l.Compute + "`"
	}
	var all []string
	for _, name := range l.labs() {
		all = append(all, at.link(name))
	}
	return strings.Join(all, ", ")
}

// link is a link from the page to a lab.
func (at Place) link(lab string) string {
	if at.Labs == "" {
		return "`" + lab + "`"
	}
	return fmt.Sprintf("[%s](%s/%[1]s.mcl.yml)", lab, at.Labs)
}

// remarks are the texts of a result, each with its subject.
func (o *Outcome) remarks() (all [][2]string) {
	for i := range o.Lines {
		if l := &o.Lines[i]; l.Beside != "" {
			all = append(all, [2]string{fmt.Sprintf("Why %q does not count", l.Name), l.Beside})
		}
	}
	for _, x := range [][2]string{{"Why it is off", o.Off}, {"Why it cannot be reproduced", o.Cannot}, {"Not tried", o.Open}, {"Note", o.Note}} {
		if x[1] != "" {
			all = append(all, x)
		}
	}
	return all
}

// Place is the location of a page in Markdown.
type Place struct {
	Figures string // folder of the pictures, as seen from the page
	Labs    string // that of the labs; "": they are named and not linked to
	Made    string // how the page was made, as a paragraph
}

// Markdown returns the page as Markdown.
func Markdown(all []Outcome, at Place) string {
	var b strings.Builder
	c := Tally(all)
	fmt.Fprintf(&b, "# Reproduction\n\n%s\n\n%s\n\n%s\n", preface, at.Made, c.Sentence())
	b.WriteString("\n| figure | result | verdict |\n|---|---|---|\n")
	for _, x := range index(all) {
		fmt.Fprintf(&b, "| %s | [%s](#%s) | %s |\n", cell(x.title), x.of.ID, anchor(x.of), x.of.Verdict)
	}
	var paper *Paper
	for i := range all {
		o := &all[i]
		if o.Paper != paper {
			paper = o.Paper
			fmt.Fprintf(&b, "\n## %s\n\n%s.\n", paper.Name, paper.Full)
		}
		fmt.Fprintf(&b, "\n### %s: %s\n\n*%s*. %s: %s\n", o.ID, o.Title, o.Verdict, o.Source, o.Says)
		if len(o.Parameters) > 0 {
			b.WriteString("\n| parameter | the paper | here | why |\n|---|---|---|---|\n")
			for _, p := range o.Parameters {
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(p.Name), cell(p.Paper), cell(p.Ours), cell(p.Why))
			}
		}
		if len(o.Lines) > 0 {
			b.WriteString("\n| what | the paper | band | measured | in band | basis | from |\n|---|---|---|---|---|---|---|\n")
			for k := range o.Lines {
				l := &o.Lines[k]
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", cell(l.Name), cell(l.Paper), cell(l.band()), cell(l.got()), l.mark(), l.Basis, l.links(at))
			}
		}
		for _, x := range o.remarks() {
			fmt.Fprintf(&b, "\n%s: %s\n", x[0], x[1])
		}
		for k := range o.Figures {
			f := &o.Figures[k]
			fmt.Fprintf(&b, "\n![%s](%s/%s.svg)\n\n", f.Title, at.Figures, f.Name)
			if len(f.Says) > 0 {
				fmt.Fprintf(&b, "The paper's text: %s.\n\n", strings.Join(f.Says, "; "))
			}
			fmt.Fprintf(&b, "[Its points](%s/%s.csv)\n", at.Figures, f.Name)
		}
	}
	b.WriteString("\n## The labs\n\nWhat is not named is a lab file's default (docs/lab-file.md).\n\n")
	b.WriteString("| lab | " + strings.Join(settingNames, " | ") + " |\n|---|" + strings.Repeat("---|", len(settingNames)) + "\n")
	for _, x := range settings(all) {
		fmt.Fprintf(&b, "| %s |", at.link(x.lab))
		for _, v := range x.values {
			fmt.Fprintf(&b, " %s |", cell(v))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell returns a text for a cell of a table.
func cell(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "|", "\\|") }

const sheet = `:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:0 auto;padding:1rem;color:#1f2937;background:#fff}
h1,h2,h3{line-height:1.25}h3{margin-top:2.5rem}
table{border-collapse:collapse;margin:.8rem 0;font-size:.9rem}td,th{border:1px solid #d1d5db;padding:.25rem .5rem;text-align:left;vertical-align:top}
.wide{overflow-x:auto}svg{min-width:34rem;max-width:100%;height:auto;display:block;margin:.8rem 0}
.v{display:inline-block;border-radius:.3rem;padding:0 .5rem;font-size:.85rem;border:1px solid currentColor}
.yes{color:#166534}.no{color:#b91c1c}code{font-size:.85rem}a{color:#1d4ed8}
@media(prefers-color-scheme:dark){body{color:#e5e7eb;background:#111827}td,th{border-color:#4b5563}.yes{color:#86efac}.no{color:#fca5a5}a{color:#93c5fd}}`

// HTML returns the page as one file that needs no other, and no script.
func HTML(all []Outcome, pictures map[string]string) string {
	var b strings.Builder
	e := html.EscapeString
	c := Tally(all)
	b.WriteString("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n")
	b.WriteString("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n")
	fmt.Fprintf(&b, "<title>mcastlab: reproduction</title><style>%s</style></head><body>\n<h1>Reproduction</h1>\n<p>%s</p>\n<p>%s</p>\n",
		sheet, e(preface), e(c.Sentence()))
	b.WriteString("<div class=\"wide\"><table><tr><th>result</th><th>about</th><th>where</th><th>verdict</th></tr>\n")
	for i := range all {
		o := &all[i]
		fmt.Fprintf(&b, "<tr><td><a href=\"#%s\">%s</a></td><td>%s</td><td>%s, %s</td><td>%s</td></tr>\n",
			e(o.ID), e(o.ID), e(o.Title), e(o.Paper.Name), e(o.Source), e(string(o.Verdict)))
	}
	b.WriteString("</table></div>\n<div class=\"wide\"><table><tr><th>figure</th><th>result</th><th>verdict</th></tr>\n")
	for _, x := range index(all) {
		fmt.Fprintf(&b, "<tr><td><a href=\"#figure-%s\">%s</a></td><td>%s</td><td>%s</td></tr>\n", e(x.name), e(x.title), e(x.of.ID), e(string(x.of.Verdict)))
	}
	b.WriteString("</table></div>\n")
	var paper *Paper
	for i := range all {
		if o := &all[i]; o.Paper != paper {
			paper = o.Paper
			fmt.Fprintf(&b, "<h2>%s</h2>\n<p>%s.</p>\n", e(paper.Name), e(paper.Full))
		}
		all[i].html(&b, pictures)
	}
	b.WriteString("<h2>The labs</h2>\n<p>They are examples/papers/LAB.mcl.yml. What is not named is a lab file's default.</p>\n")
	b.WriteString("<div class=\"wide\"><table><tr><th>lab</th><th>" + strings.Join(settingNames, "</th><th>") + "</th></tr>\n")
	for _, x := range settings(all) {
		fmt.Fprintf(&b, "<tr><td><code>%s</code></td>", e(x.lab))
		for _, v := range x.values {
			fmt.Fprintf(&b, "<td>%s</td>", e(v))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table></div>\n</body></html>\n")
	return b.String()
}

// html writes one result.
func (o *Outcome) html(b *strings.Builder, pictures map[string]string) {
	e := html.EscapeString
	fmt.Fprintf(b, "<h3 id=\"%s\">%s: %s</h3>\n<p><span class=\"v\">%s</span> %s: %s</p>\n",
		e(o.ID), e(o.ID), e(o.Title), e(string(o.Verdict)), e(o.Source), e(o.Says))
	if len(o.Parameters) > 0 {
		b.WriteString("<div class=\"wide\"><table><tr><th>parameter</th><th>the paper</th><th>here</th><th>why</th></tr>\n")
		for _, p := range o.Parameters {
			fmt.Fprintf(b, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", e(p.Name), e(p.Paper), e(p.Ours), e(p.Why))
		}
		b.WriteString("</table></div>\n")
	}
	if len(o.Lines) > 0 {
		b.WriteString("<div class=\"wide\"><table><tr><th>what</th><th>the paper</th><th>band</th><th>measured</th><th>in band</th><th>basis</th><th>from</th></tr>\n")
		for k := range o.Lines {
			l := &o.Lines[k]
			fmt.Fprintf(b, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td class=\"%s\">%s</td><td>%s</td><td><code>%s</code></td></tr>\n",
				e(l.Name), e(l.Paper), e(l.band()), e(l.got()), l.class(), l.mark(), l.Basis, e(l.from()))
		}
		b.WriteString("</table></div>\n")
	}
	for _, x := range o.remarks() {
		fmt.Fprintf(b, "<p>%s: %s</p>\n", e(x[0]), e(x[1]))
	}
	for k := range o.Figures {
		f := &o.Figures[k]
		fmt.Fprintf(b, "<div class=\"wide\" id=\"figure-%s\">%s</div>\n", e(f.Name), pictures[f.Name])
		if len(f.Says) > 0 {
			fmt.Fprintf(b, "<p>The paper's text: %s.</p>\n", e(strings.Join(f.Says, "; ")))
		}
	}
}
