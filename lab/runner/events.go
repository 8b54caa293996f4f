// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"io"
	"os"
)

// oldEventFiles is the number of full files of events that are kept beside events.jsonl.
const oldEventFiles = 4

// eventFiles are the files of a run's events: events.jsonl, and full ones put aside as
// events-1.jsonl, events-2.jsonl and so on, the newest of which are kept.
type eventFiles struct {
	folder *Folder
	f      *os.File
	lines  []uint64 // of the files put aside, from the first on
}

// eventsName is the file of a run's latest events.
const eventsName = "events.jsonl"

func oldEvents(n int) string { return fmt.Sprintf("events-%d.jsonl", n) }

func (e *eventFiles) open() (err error) {
	if e.f, err = e.folder.Create(eventsName); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// rotate implements traces.Events' Rotate.
func (e *eventFiles) rotate(lines uint64) (next io.Writer, lost uint64, err error) {
	if err := e.f.Close(); err != nil {
		return nil, 0, err
	}
	e.lines = append(e.lines, lines)
	n := len(e.lines)
	if err := e.folder.root.Rename(eventsName, oldEvents(n)); err != nil {
		return nil, 0, err
	}
	if old := n - oldEventFiles; old > 0 {
		if err := e.folder.root.Remove(oldEvents(old)); err != nil {
			return nil, 0, err
		}
		lost = e.lines[old-1]
	}
	if err := e.open(); err != nil {
		return nil, lost, err
	}
	return e.f, lost, nil
}

func (e *eventFiles) close() error { return e.f.Close() }
