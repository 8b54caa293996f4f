// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Types of values with units. Each reads from text and prints text that reads back
// the same. Those that settings of workloads have, too, are in package setting.
type (
	// Rate is bits per second.
	Rate = setting.Rate
	// Size is bytes.
	Size = setting.Size
	// Duration is lab time.
	Duration = setting.Duration
	// Iterations is a number of repeats; 0 is auto.
	Iterations = setting.Iterations
	// Count is a number; 0 is as many as there are ranks.
	Count = setting.Count
	// Share is a number of hosts: above 0 itself, below 0 a percentage.
	Share = setting.Share
	// Class is a DSCP.
	Class = setting.Class
	// Hosts is a choice of hosts: names and patterns; empty is all.
	Hosts = setting.Hosts
	// Scheme is an algorithm: its name, or its name with parameters.
	Scheme = setting.Scheme
)

// Timeout is a retransmission timeout as a verbs code; 0 is infinite.
type Timeout uint8

// Retries is a retry count; RetriesInfinite has no end.
type Retries uint8

// RetriesInfinite is the verbs' value for retries without end.
const RetriesInfinite Retries = 7

// Dilation is wall time per lab time; 0 is auto.
type Dilation float64

// dilationMax is the largest dilation: about four months of wall time for a second of lab time.
const dilationMax = 1e7

// Set reads a number, or auto.
func (d *Dilation) Set(s string) error {
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

// Probability is a number from 0 to 1, in a file also a share in percent.
type Probability float64

// Set reads the number or the share.
func (p *Probability) Set(s string) error {
	num, percent := strings.CutSuffix(s, "%")
	if percent {
		num = strings.TrimSpace(num) + "e-2"
	}
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%q is not a number, such as 0.01, or a share, such as 1%%", s)
	}
	*p = Probability(v)
	return nil
}

// String prints the number without an exponent: readers of YAML disagree on the type of 1e-05.
func (p Probability) String() string { return strconv.FormatFloat(float64(p), 'f', -1, 64) }

const infinite = "infinite"

// Set reads a span with its unit, or infinite.
func (t *Timeout) Set(s string) error {
	if s == infinite {
		*t = 0
		return nil
	}
	var d Duration
	if err := d.Set(s); err != nil {
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

// Set reads a number, or infinite.
func (r *Retries) Set(s string) error {
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

// ParseTimeout reads a retransmission timeout as a verbs code.
func ParseTimeout(s string) (uint8, error) {
	var t Timeout
	err := t.Set(s)
	return uint8(t), err
}

// ParseSize reads a size with its unit.
func ParseSize(s string) (Size, error) { return setting.ParseSize(s) }

// ParseRate reads a rate with its unit.
func ParseRate(s string) (Rate, error) { return setting.ParseRate(s) }
