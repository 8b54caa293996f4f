// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/mcastlab/mcastlab/lab/runner"
)

// Intervals of the display.
const (
	redraw    = 100 * time.Millisecond
	firstLine = 5 * time.Second  // off a terminal: then twice as long each time
	stall     = 10 * time.Second // without an iteration: say what it waits on
)

// progressDisplay shows the progress of a run: a bar on a terminal, sparse lines elsewhere.
type progressDisplay struct {
	w        io.Writer
	bar      *progressbar.ProgressBar
	width    func() int // of the terminal, in columns
	start    time.Time
	movedAt  time.Time // when the first frames had moved; zero: none have
	last     time.Time
	nextLine time.Duration
	step     int
	stepAt   time.Time
}

func newProgress(w io.Writer) *progressDisplay {
	now := time.Now()
	p := &progressDisplay{w: w, start: now, last: now, nextLine: firstLine, stepAt: now}
	if terminalColumns(w) > 0 {
		p.bar = newBar(w)
		p.width = func() int { return terminalColumns(w) }
	}
	return p
}

// terminalColumns returns the width of a terminal, which is 80 if it does not say, and 0 of what is none.
func terminalColumns(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 1 {
		return 80
	}
	return columns
}

func newBar(w io.Writer) *progressbar.ProgressBar {
	return progressbar.NewOptions(1, progressbar.OptionSetWriter(w), progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(barWidth), progressbar.OptionSetElapsedTime(true))
}

// Columns of the display on a terminal: a line that wraps would leave one behind at each redraw.
const (
	barWidth = 12
	barFrame = len(" 100% ||  [00h00m00s:00h00m00s] ") + barWidth // beside the description
)

// Update implements runner.Progress.
func (p *progressDisplay) Update(s runner.ProgressState) {
	now := time.Now()
	if s.Step != p.step {
		p.step, p.stepAt = s.Step, now
	}
	if s.PacketHops > 0 && p.movedAt.IsZero() {
		p.movedAt = now
	}
	elapsed := now.Sub(p.start)
	switch {
	case p.bar != nil:
		if now.Sub(p.last) < redraw {
			return
		}
		p.bar.ChangeMax(max(1, s.Steps))
		p.bar.Describe(fitting(p.describe(s, now), p.width()-barFrame))
		// A failed redraw is not worth a word.
		_ = p.bar.Set(max(0, s.Step-1))
	case elapsed >= p.nextLine:
		p.nextLine *= 2
		fmt.Fprintf(p.w, "%s  [%d/%d, %s%s]\n", strings.Join(p.describe(s, now), " | "), s.Step, s.Steps, elapsed.Round(time.Second), p.remaining(s, now, elapsed))
	}
	p.last = now
}

// describe returns the progress in parts, the most important first: the row, after a stall the reason of the ranks' wait, lab time,
// its ratio to real time, packet-hops per second.
func (p *progressDisplay) describe(s runner.ProgressState, now time.Time) (parts []string) {
	real := now.Sub(p.start).Seconds()
	rate := float64(s.PacketHops) / real
	hops := fmt.Sprintf("%.1f M", rate/1e6)
	if rate < 1e6 {
		hops = fmt.Sprintf("%.0f k", rate/1e3)
	}
	parts = append(parts, s.Doing)
	if now.Sub(p.stepAt) > stall && s.Waiting != nil {
		if on := s.Waiting(); on != "" {
			parts = append(parts, "waiting on "+on)
		}
	}
	parts = append(parts, fmt.Sprintf("lab time %v", s.LabTime))
	if lab := s.LabTime.Microseconds() / 1e6; lab > 0 {
		parts = append(parts, pace(real/lab))
	}
	return append(parts, hops+" packet-hops/s")
}

// pace returns the ratio of real time to lab time in words, with two digits that count.
func pace(ratio float64) string {
	word := "slower"
	if ratio < 1 {
		ratio, word = 1/max(ratio, 1e-9), "faster"
	}
	digits, _ := strconv.ParseFloat(strconv.FormatFloat(ratio, 'g', 2, 64), 64) // of a number just formatted
	text := strconv.FormatFloat(digits, 'f', -1, 64)
	for i := len(text) - 3; digits >= 1000 && i > 0; i -= 3 { // a whole number
		text = text[:i] + "," + text[i:]
	}
	return text + " times " + word + " than real time"
}

// fitting joins the parts, from the first on, that fit into a number of columns. A first part that does not fit is cut.
func fitting(parts []string, columns int) (text string) {
	columns = max(columns, 8)
	for i, part := range parts {
		switch {
		case i == 0 && utf8.RuneCountInString(part) > columns:
			return string([]rune(part)[:columns-1]) + "…"
		case i == 0:
			text = part
		case utf8.RuneCountInString(text)+3+utf8.RuneCountInString(part) <= columns:
			text += " | " + part
		}
	}
	return text
}

func (p *progressDisplay) remaining(s runner.ProgressState, now time.Time, elapsed time.Duration) string {
	if s.PacketHops > 0 && s.AllHops > s.PacketHops {
		moving := now.Sub(p.movedAt)
		left := time.Duration(float64(moving) * (float64(s.AllHops)/float64(s.PacketHops) - 1))
		return fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	if s.Step < 2 || s.Step >= s.Steps {
		return ""
	}
	left := elapsed / time.Duration(s.Step-1) * time.Duration(s.Steps-s.Step+1)
	return fmt.Sprintf(", about %s left", left.Round(time.Second))
}

// Done implements runner.Progress.
func (p *progressDisplay) Done() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
