package command

import (
	"fmt"
	"io"
	"time"

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
	if f, ok := w.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(1, progressbar.OptionSetWriter(w), progressbar.OptionSetPredictTime(true),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(24), progressbar.OptionSetElapsedTime(true))
	}
	return p
}

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
		p.bar.Describe(p.describe(s, now))
		// A failed redraw is not worth a word.
		_ = p.bar.Set(max(0, s.Step-1))
	case elapsed >= p.nextLine:
		p.nextLine *= 2
		fmt.Fprintf(p.w, "%s  [%d/%d, %s%s]\n", p.describe(s, now), s.Step, s.Steps, elapsed.Round(time.Second), p.remaining(s, now, elapsed))
	}
	p.last = now
}

// describe returns the progress in words: lab time, its ratio to real time, packet-hops per second,
// and after a stall what the ranks wait for.
func (p *progressDisplay) describe(s runner.ProgressState, now time.Time) string {
	real := now.Sub(p.start).Seconds()
	ratio := real * 1e6 / max(1e-9, s.LabTime.Microseconds())
	rate := float64(s.PacketHops) / real
	hops := fmt.Sprintf("%.1f M", rate/1e6)
	if rate < 1e6 {
		hops = fmt.Sprintf("%.0f k", rate/1e3)
	}
	text := fmt.Sprintf("%s | lab time %v, 1:%.0f | %s packet-hops/s", s.Doing, s.LabTime, ratio, hops)
	if now.Sub(p.stepAt) > stall && s.Waiting != nil {
		if on := s.Waiting(); on != "" {
			text += " | waiting on " + on
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
