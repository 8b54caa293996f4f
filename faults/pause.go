package faults

import "github.com/mcastlab/mcastlab/vtime"

// PauseQuantaMax is the longest pause one PFC frame asks for.
const PauseQuantaMax = 0xffff

// PauseStep is one PFC frame of a pause.
type PauseStep struct {
	At     vtime.Time
	Quanta uint16
}

// pauseStepsMax bounds a pause without end: it is refreshed so often and then runs out.
const pauseStepsMax = 20000

// PauseSteps returns the frames that keep a class paused from one instant to another:
// XOFF, repeated before it runs out, and XON at the end. full is how long the longest
// pause lasts on the link.
func PauseSteps(from, until vtime.Time, full vtime.Duration) (steps []PauseStep) {
	for at := from; at < until && len(steps) < pauseStepsMax; at = at.Add(full / 2) {
		steps = append(steps, PauseStep{at, PauseQuantaMax})
	}
	if until != vtime.Never {
		steps = append(steps, PauseStep{until, 0})
	}
	return steps
}
