// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Expect is one line of expect: two expressions and a comparison, such as
//
//	bcast.cepheus.64MiB.jct.p50 < bcast.binomial.64MiB.jct.p50 / 1.9
//
// An expression has numbers, spans of time such as 100us or 1.5ms, + - * / and parentheses, and quantities WORKLOAD.SCHEME.SIZE.jct|source.avg|min|max|p50|p99 in
// microseconds; of HPL, whose size is that of the matrix, also WORKLOAD.SCHEME.SIZE.sum.broadcast|swap|factor; of storage, also
// WORKLOAD.SCHEME.SIZE.io.iops|replicas|copied; of many-to-many also latency, in microseconds, and goodput, in Gb/s, with the same
// statistics; of fsdp also allgather and reduce-scatter, the time until that half is done; of flows, whose scheme is the flow, also
// goodput, rate.N, the Gb/s of the N-th interval, and beside.F, fairness.F and regain.F, the flow's share beside flow F (apps/flows).
// Of a workload that has one scheme and one size, on the event clock, WORKLOAD.SCHEME.SIZE.bytes.links are the bytes of frames on all
// links, payload those of messages in them, sent and received those of its hosts.
// WORKLOAD.SCHEME.SIZE.fallback.fallbacks|returns|probes|overlay|apart|restarted count the actions of a scheme's fallback to unicast,
// and WORKLOAD.SCHEME.SIZE.recovery.cutoffs|requests|fetched|duplicates|stale the recoveries of one that may lose data. Of a bcast by
// ud- or uc-multicast and an allgather by multicast, WORKLOAD.SCHEME.SIZE.phase.barrier|multicast|handshake are the microseconds that a
// rank spends in each.
//
// A line may begin with PRED or CAL. PRED (predicted): no parameter was tuned to make the line hold. CAL (calibrated): a parameter of
// the lab was tuned to match, so the line guards against regressions only.
type Expect struct {
	Text        string
	Basis       string // CAL, PRED or nothing
	op          string
	left, right expr
}

// NotFinite is the error of a line whose one side is infinite or not a number: it compares with nothing.
type NotFinite struct {
	Side  string // left or right
	Value float64
}

// Error implements error.
func (e *NotFinite) Error() string {
	return fmt.Sprintf("its %s side is %v: it divides by 0, or is beyond the range of numbers", e.Side, e.Value)
}

// The words that a line of expect may begin with.
const (
	Calibrated = "CAL"
	Predicted  = "PRED"
)

// Lookup returns the value of a quantity, or an error that names the missing part.
type Lookup func(name string) (float64, error)

// expr is an expression. One without quantities is constant.
type expr struct {
	eval     func(Lookup) (float64, error)
	constant bool
}

// constant is a number as an expression.
func constant(v float64) expr {
	return expr{eval: func(Lookup) (float64, error) { return v, nil }, constant: true}
}

// Eval evaluates the line. got is the left side's value. A side that is infinite or not a number is an error of the
// type NotFinite: the line does not hold.
func (e *Expect) Eval(look Lookup) (got float64, ok bool, err error) {
	got, err = e.left.eval(look)
	if err != nil {
		return 0, false, err
	}
	want, err := e.right.eval(look)
	switch {
	case err != nil:
		return 0, false, err
	case !finite(got):
		return got, false, &NotFinite{"left", got}
	case !finite(want):
		return got, false, &NotFinite{"right", want}
	}
	switch e.op {
	case "<":
		ok = got < want
	case "<=":
		ok = got <= want
	case ">":
		ok = got > want
	case ">=":
		ok = got >= want
	case "==":
		ok = got == want
	}
	return got, ok, nil
}

// ParseExpect reads a line of expect.
func ParseExpect(text string) (*Expect, error) {
	p := &expectParser{text: text, words: tokens(text)}
	e := &Expect{Text: text}
	if w := p.peek(); w == Calibrated || w == Predicted {
		e.Basis = p.next()
	}
	var err error
	if e.left, err = p.sum(0); err != nil {
		return nil, err
	}
	switch e.op = p.next(); e.op {
	case "<", "<=", ">", ">=", "==":
	default:
		return nil, p.errorf("needs a comparison: <, <=, >, >= or ==")
	}
	if e.right, err = p.sum(0); err != nil {
		return nil, err
	}
	if w := p.next(); w != "" {
		return nil, p.errorf("has %q after its end", w)
	}
	if p.span != "" && p.untimed != "" {
		return nil, p.errorf("has the time %s, and %s is not a time: leave the unit out", p.span, p.untimed)
	}
	return e, nil
}

// Expression is one side of a line of expect.
type Expression struct{ value expr }

// ParseExpression reads an expression such as bcast.chain.64MiB.jct.p50 / bcast.cepheus.64MiB.jct.p50 (Expect).
func ParseExpression(text string) (*Expression, error) {
	p := &expectParser{text: text, words: tokens(text)}
	e, err := p.sum(0)
	if err != nil {
		return nil, err
	}
	if w := p.next(); w != "" {
		return nil, p.errorf("has %q after its end", w)
	}
	return &Expression{e}, nil
}

// Eval returns the expression's value.
func (e *Expression) Eval(look Lookup) (float64, error) { return e.value.eval(look) }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

type expectParser struct {
	text  string
	words []string

	span    string // the first number with a unit of time
	untimed string // the first quantity that is no time
}

// timed are the quantities in microseconds (Expect).
var timed = []string{"jct", "source", "latency", "allgather", "reduce-scatter", "phase"}

func (p *expectParser) errorf(format string, args ...any) error {
	return fmt.Errorf("%q %s", p.text, fmt.Sprintf(format, args...))
}

func (p *expectParser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *expectParser) next() string {
	w := p.peek()
	if w != "" {
		p.words = p.words[1:]
	}
	return w
}

// tokens cuts a line into names, numbers and operators.
func tokens(s string) (words []string) {
	inWord := func(r rune) bool {
		return r == '.' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)
	}
	for i := 0; i < len(s); {
		r := rune(s[i])
		j := i + 1
		switch {
		case unicode.IsSpace(r):
			i++
			continue
		case inWord(r):
			// A hyphen belongs to a name if letters follow at once: two-level.
			for j < len(s) && (inWord(rune(s[j])) || s[j] == '-' && j+1 < len(s) && unicode.IsLetter(rune(s[j+1]))) {
				j++
			}
		case strings.ContainsRune("<>=", r) && j < len(s) && s[j] == '=':
			j++
		}
		words = append(words, s[i:j])
		i = j
	}
	return words
}

// microseconds reads a span of time: a number and ns, us, ms or s.
func microseconds(w string) (us float64, ok bool) {
	number := strings.TrimRight(w, "abcdefghijklmnopqrstuvwxyz")
	unit, ok := map[string]float64{"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[w[len(number):]]
	v, err := strconv.ParseFloat(number, 64)
	return v * unit, ok && err == nil && finite(v*unit)
}

// depthExpr bounds the nesting of parentheses.
const depthExpr = 20

func (p *expectParser) sum(depth int) (expr, error) {
	return p.chain(depth, (*expectParser).product, "+", "-")
}

func (p *expectParser) product(depth int) (expr, error) {
	return p.chain(depth, (*expectParser).atom, "*", "/")
}

// chain reads operands joined by either of two operators, from left to right.
func (p *expectParser) chain(depth int, operand func(*expectParser, int) (expr, error), plus, minus string) (expr, error) {
	left, err := operand(p, depth)
	if err != nil {
		return expr{}, err
	}
	for p.peek() == plus || p.peek() == minus {
		op := p.next()
		right, err := operand(p, depth)
		if err != nil {
			return expr{}, err
		}
		if left, err = p.binary(op, left, right); err != nil {
			return expr{}, err
		}
	}
	return left, nil
}

// binary joins two operands. What is constant is evaluated at once: a line that no run can satisfy is refused.
func (p *expectParser) binary(op string, left, right expr) (expr, error) {
	e := expr{constant: left.constant && right.constant, eval: func(look Lookup) (float64, error) {
		a, err := left.eval(look)
		if err != nil {
			return 0, err
		}
		b, err := right.eval(look)
		if err != nil {
			return 0, err
		}
		switch op {
		case "+":
			return a + b, nil
		case "-":
			return a - b, nil
		case "*":
			return a * b, nil
		}
		return a / b, nil
	}}
	if right.constant && op == "/" {
		if b, _ := right.eval(nil); b == 0 { // a constant: it asks for nothing
			return expr{}, p.errorf("divides by 0")
		}
	}
	if !e.constant {
		return e, nil
	}
	v, _ := e.eval(nil) // likewise
	if !finite(v) {
		return expr{}, p.errorf("has a constant that is %v", v)
	}
	return constant(v), nil
}

func (p *expectParser) atom(depth int) (expr, error) {
	w := p.next()
	switch {
	case depth > depthExpr:
		return expr{}, p.errorf("nests deeper than %d", depthExpr)
	case w == "(":
		e, err := p.sum(depth + 1)
		if err == nil && p.next() != ")" {
			err = p.errorf("lacks a closing parenthesis")
		}
		return e, err
	case w == "":
		return expr{}, p.errorf("ends too early")
	}
	if v, err := strconv.ParseFloat(w, 64); err == nil && finite(v) { // Inf and NaN are no numbers to compare with
		return constant(v), nil
	}
	if us, ok := microseconds(w); ok {
		p.span = cmp.Or(p.span, w)
		return constant(us), nil
	}
	parts := strings.Split(w, ".")
	if len(parts) != 5 || !unicode.IsLetter(rune(w[0])) {
		return expr{}, p.errorf("has %q, which is neither a number nor WORKLOAD.SCHEME.SIZE.jct.p50", w)
	}
	if p.untimed == "" && !slices.Contains(timed, parts[3]) {
		p.untimed = w
	}
	return expr{eval: func(look Lookup) (float64, error) { return look(w) }}, nil
}
