// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"strconv"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// TimesFile is the file of a run folder with the time of each rank in each iteration (GEN-11).
const TimesFile = "times.csv"

// timesHead names the columns of TimesFile. A receiver's time ends when it has the message, a source's
// when it has all acknowledgements; both count from the iteration's start.
const timesHead = "workload,scheme,size_bytes,iteration,rank,host,role,start_us,time_us\n"

// times collects the lines of TimesFile.
type times struct {
	names []string // of the lab's nodes
	text  []byte
}

// newTimes returns the collector of the times of a run of the lab, nil if it does not ask for them.
func newTimes(l *lab.Lab) (*times, error) {
	if l.Times != lab.TimesRanks {
		return nil, nil
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, err
	}
	t := &times{text: []byte(timesHead)}
	for i := range g.Nodes {
		t.names = append(t.names, g.Nodes[i].Name)
	}
	return t, nil
}

// enter adds the iterations of a workload. Those of workloads that have none are left out, as are
// external ranks, whose times are unknown. A nil times adds nothing.
func (t *times) enter(w *Workload, records [][][]byte) error {
	m, tells := w.App.(apps.Messenger)
	if t == nil || !tells {
		return nil
	}
	all, err := m.Messages(w.Params, records)
	if err != nil {
		return err
	}
	for i := range all {
		x := &all[i]
		for rank, received := range x.Received {
			switch {
			case rank == x.Source && x.Done >= x.Start:
				t.line(x, rank, w.Hosts[rank], "source", x.Done)
			case rank != x.Source && received >= 0:
				t.line(x, rank, w.Hosts[rank], "receiver", received)
			}
		}
	}
	return nil
}

func (t *times) line(m *apps.Message, rank, node int, role string, end vtime.Time) {
	t.text = fmt.Appendf(t.text, "%s,%s,%d,%d,%d,%s,%s,%s,%s\n", m.Workload, m.Scheme, m.Bytes, m.Iteration, rank, t.names[node], role,
		micros(m.Start.Sub(0).Microseconds()), micros(end.Sub(m.Start).Microseconds()))
}

func micros(us float64) string { return strconv.FormatFloat(us, 'f', -1, 64) }

// write writes the file as a whole. A nil times writes nothing.
func (t *times) write(f *Folder) error {
	if t == nil {
		return nil
	}
	return f.WriteFile(TimesFile, t.text)
}
