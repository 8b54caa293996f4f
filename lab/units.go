package lab

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/vtime"
)

// Types of values with units. Each reads from text and prints text that reads back
// the same.

// Rate is bits per second.
type Rate int64

// Size is bytes.
type Size int64

// Duration is lab time.
type Duration vtime.Duration

// Timeout is a retransmission timeout as a verbs code; 0 is infinite.
type Timeout uint8

// Retries is a retry count; RetriesInfinite has no end.
type Retries uint8

// RetriesInfinite is the verbs' value for retries without end.
const RetriesInfinite Retries = 7

// Class is a DSCP.
type Class uint8

// Dilation is wall time per lab time; 0 is auto.
type Dilation float64

// dilationMax is about four months of wall time for a second of lab time.
const dilationMax = 1e7

func (d *Dilation) parse(s string) error {
	if s == "auto" {
		*d = 0
		return nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 1 && v <= dilationMax) {
		return fmt.Errorf("%q is neither auto nor a number from 1 to %.0f", s, float64(dilationMax))
	}
	*d = Dilation(v)
	return nil
}

// String prints the number.
func (d Dilation) String() string {
	if d == 0 {
		return "auto"
	}
	return strconv.FormatFloat(float64(d), 'g', -1, 64)
}

// Iterations is a number of repeats; 0 is auto.
type Iterations int

// Count is a number; 0 is as many as there are ranks.
type Count int

// Hosts is a choice of hosts: names and patterns; empty is all.
type Hosts []string

type unit struct {
	name  string
	scale float64
}

var rateUnits = []unit{{"Tbps", 1e12}, {"Gbps", 1e9}, {"Mbps", 1e6}, {"kbps", 1e3}, {"bps", 1}}

var sizeUnits = []unit{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// unitsMax is the most bytes, or bits per second, that a value may have: 1024 TiB. So many for
// each class of each port of a switch still have a sum.
const unitsMax = 1 << 50

// withUnit reads a number followed by one of the units, longest name first.
func withUnit(s string, units []unit, example string) (int64, error) {
	for _, u := range units {
		num, found := strings.CutSuffix(s, u.name)
		if !found {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil {
			break
		}
		v *= u.scale
		if v < 0 || v > unitsMax || v != math.Trunc(v) {
			return 0, fmt.Errorf("%q is out of range or not whole", s)
		}
		return int64(v), nil
	}
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return 0, fmt.Errorf("%q needs a number and a unit (%s), for example %s", s, strings.Join(names, ", "), example)
}

// inUnit prints v in the largest of the units in which it is whole.
func inUnit(v int64, units []unit) string {
	for _, u := range units {
		if v != 0 && v%int64(u.scale) == 0 {
			return strconv.FormatInt(v/int64(u.scale), 10) + u.name
		}
	}
	return strconv.FormatInt(v, 10) + units[len(units)-1].name
}

func (r *Rate) parse(s string) error {
	v, err := withUnit(s, rateUnits, "100Gbps")
	if err == nil && (v < 1e6 || v > 100e12) {
		err = fmt.Errorf("%q is not between 1Mbps and 100Tbps", s)
	}
	*r = Rate(v)
	return err
}

// String prints the rate with its unit.
func (r Rate) String() string { return inUnit(int64(r), rateUnits) }

func (b *Size) parse(s string) error {
	v, err := withUnit(s, sizeUnits, "64KiB")
	*b = Size(v)
	return err
}

// String prints the size with its unit; sizes that are whole KiB and more in binary.
func (b Size) String() string { return inUnit(int64(b), sizeUnits) }

func (d *Duration) parse(s string) error {
	v, err := vtime.ParseDuration(s)
	switch {
	case err != nil:
	case v < 0:
		err = fmt.Errorf("duration %q is negative", s)
	case v > vtime.SpanMax:
		err = fmt.Errorf("duration %q is more than a day: use at most %v", s, vtime.SpanMax)
	}
	*d = Duration(v)
	return err
}

// String prints the span with its unit.
func (d Duration) String() string { return vtime.Duration(d).String() }

const infinite = "infinite"

func (t *Timeout) parse(s string) error {
	if s == infinite {
		*t = 0
		return nil
	}
	var d Duration
	if err := d.parse(s); err != nil {
		return fmt.Errorf("%w, or infinite", err)
	}
	for code := uint8(1); code < 32; code++ {
		if virtrnic.Timeout(code) >= vtime.Duration(d) {
			*t = Timeout(code)
			return nil
		}
	}
	return fmt.Errorf("timeout %q is beyond %v", s, virtrnic.Timeout(31))
}

// Duration returns the timeout in lab time.
func (t Timeout) Duration() vtime.Duration { return virtrnic.Timeout(uint8(t)) }

// String prints the timeout the code stands for.
func (t Timeout) String() string {
	if t == 0 {
		return infinite
	}
	return t.Duration().String()
}

func (r *Retries) parse(s string) error {
	if s == infinite {
		*r = RetriesInfinite
		return nil
	}
	v, err := strconv.ParseUint(s, 10, 8)
	if err != nil || v > 6 {
		return fmt.Errorf("%q is not a number from 0 to 6, or infinite", s)
	}
	*r = Retries(v)
	return nil
}

// String prints the count.
func (r Retries) String() string {
	if r == RetriesInfinite {
		return infinite
	}
	return strconv.Itoa(int(r))
}

func (c *Class) parse(s string) error {
	v, err := strconv.ParseUint(s, 10, 8)
	if err != nil || v > 63 {
		return fmt.Errorf("%q is not a DSCP from 0 to 63", s)
	}
	*c = Class(v)
	return nil
}

// String prints the DSCP.
func (c Class) String() string { return strconv.Itoa(int(c)) }

// Priority returns the PFC class of the DSCP.
func (c Class) Priority() int { return int(c >> 3) }

func (i *Iterations) parse(s string) error {
	if s == "auto" {
		*i = 0
		return nil
	}
	v, err := strconv.ParseUint(s, 10, 24)
	if err != nil || v == 0 {
		return fmt.Errorf("%q is not a number of iterations from 1 to 16777215, or auto", s)
	}
	*i = Iterations(v)
	return nil
}

// String prints the number.
func (i Iterations) String() string {
	if i == 0 {
		return "auto"
	}
	return strconv.Itoa(int(i))
}

func (c *Count) parse(s string) error {
	if s == "ranks" {
		*c = 0
		return nil
	}
	v, err := strconv.ParseUint(s, 10, 20)
	if err != nil || v == 0 {
		return fmt.Errorf("%q is not a number from 1 on, or ranks", s)
	}
	*c = Count(v)
	return nil
}

// String prints the number.
func (c Count) String() string {
	if c == 0 {
		return "ranks"
	}
	return strconv.Itoa(int(c))
}

// ParseSize reads a size with its unit.
func ParseSize(s string) (Size, error) {
	var b Size
	err := b.parse(s)
	return b, err
}

// ParseRate reads a rate with its unit.
func ParseRate(s string) (Rate, error) {
	var r Rate
	err := r.parse(s)
	return r, err
}

// ParseTimeout reads a retransmission timeout as a verbs code.
func ParseTimeout(s string) (uint8, error) {
	var t Timeout
	err := t.parse(s)
	return uint8(t), err
}
