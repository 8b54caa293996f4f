// SPDX-License-Identifier: Apache-2.0

package search

import "github.com/mcastlab/mcastlab/lab"

// labTriesMax bounds the number of smaller labs that are tried.
const labTriesMax = 300

// shrinkLab returns the smallest lab it finds that breaks the promise in the same way: it
// takes out of the drawn file whatever can go, the largest parts first.
func shrinkLab(s *sketch, l *lab.Lab, v *Violation, try func(*lab.Lab) (LabOutcome, error)) (*lab.Lab, error) {
	most := labTriesMax
	switch v.Class {
	case classHang:
		return l, nil // it does not end: nothing else can be tried in this process
	case classMemory:
		most /= 10
	case classEndless:
		most /= 100 // each takes minutes
	}
	for tries, again := 0, true; again; {
		again = false
		for _, part := range s.parts() {
			undo := part.do()
			smaller, err := lab.Parse("drawn", s.file())
			if err != nil || len(smaller.Workloads) == 0 || settleDeadlock(smaller) != nil {
				undo()
				continue
			}
			if tries++; tries > most {
				undo()
				return l, nil
			}
			out, err := try(smaller)
			if err != nil {
				return l, err
			}
			if out.Violation == nil || out.Violation.Class != v.Class {
				undo()
				continue
			}
			l, again = smaller, true
			break // the list of parts is that of another lab
		}
	}
	return l, nil
}
