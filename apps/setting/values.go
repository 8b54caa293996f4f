// SPDX-License-Identifier: Apache-2.0

// Package setting has the types of workload settings: values with units that read themselves from a lab
// file, choices of hosts, schemes, and the checks that they share. Package lab uses it for the rest of
// the file, too.
package setting

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// Rate is bits per second.
type Rate int64

// Size is bytes.
type Size int64

// Duration is lab time.
type Duration vtime.Duration

// Iterations is a number of repeats; 0 is auto.
type Iterations int

// Count is a number; 0 is as many as there are ranks.
type Count int

// Class is a DSCP.
type Class uint8

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
		num = strings.TrimSpace(num)
		v, err := strconv.ParseFloat(num, 64)
		if err != nil || strings.Trim(strings.TrimPrefix(num, "-"), "0123456789.") != "" {
			break // as of durations: neither 1e3Gbps nor +1Gbps nor 1_000Gbps
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

// Set reads a rate with its unit.
func (r *Rate) Set(s string) error {
	v, err := withUnit(s, rateUnits, "100Gbps")
	if err == nil && (v < 1e6 || v > 100e12) {
		err = fmt.Errorf("%q is not between 1Mbps and 100Tbps", s)
	}
	*r = Rate(v)
	return err
}

// String prints the rate with its unit.
func (r Rate) String() string { return inUnit(int64(r), rateUnits) }

// Set reads a size with its unit.
func (b *Size) Set(s string) error {
	v, err := withUnit(s, sizeUnits, "64KiB")
	*b = Size(v)
	return err
}

// String prints the size with its unit; sizes that are whole KiB and more in binary.
func (b Size) String() string { return inUnit(int64(b), sizeUnits) }

// Set reads a span with its unit.
func (d *Duration) Set(s string) error {
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

// Set reads a number, or auto.
func (i *Iterations) Set(s string) error {
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

// Set reads a number, or ranks.
func (c *Count) Set(s string) error {
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
	err := b.Set(s)
	return b, err
}

// ParseRate reads a rate with its unit.
func ParseRate(s string) (Rate, error) {
	var r Rate
	err := r.Set(s)
	return r, err
}

// Share is a number of hosts: above 0 itself, below 0 a percentage.
type Share int

const shareAll Share = -100

// Set reads a number, a percentage or all.
func (x *Share) Set(s string) error {
	if s == "all" {
		*x = shareAll
		return nil
	}
	num, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseUint(num, 10, 20)
	switch {
	case err != nil || v == 0 || percent && v > 100:
		return fmt.Errorf("%q is not a number from 1 on, a share from 1%% to 100%%, or all", s)
	case percent:
		*x = -Share(v)
	default:
		*x = Share(v)
	}
	return nil
}

// String prints the share.
func (x Share) String() string {
	switch {
	case x == shareAll:
		return "all"
	case x < 0:
		return fmt.Sprintf("%d%%", -x)
	}
	return strconv.Itoa(int(x))
}

// Of returns the share of that many hosts, rounded to the nearest number and 1 at least.
func (x Share) Of(hosts int) int {
	if x > 0 {
		return int(x)
	}
	return max(1, (hosts*int(-x)+50)/100)
}

// Set reads a number.
func (c *Class) Set(s string) error {
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
