package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/labspec"
	"github.com/mcastlab/mcastlab/lab"
)

// ActsFile is the file of a run folder that says what was done by hand (faults.Act) while the run was under
// way. A run of the same lab that is given the file does the same at the same instants.
const ActsFile = "acts.jsonl"

// ReadActs reads a file of acts on a lab.
func ReadActs(file string, l *lab.Lab) (all []faults.Act, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read what was done by hand: %w", err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, fmt.Errorf("build topology: %w", err)
	}
	number := 0
	for line := range bytes.Lines(b) {
		number++
		var a faults.Act
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		err := d.Decode(&a)
		switch {
		case err != nil:
		case a.At < 0 || len(all) > 0 && a.At < all[len(all)-1].At:
			err = errors.New("it comes before the one above it, or before the run")
		case (a.Reset == nil) == (a.Fault == nil) || a.Fault != nil && a.ID == "":
			err = errors.New("it has to add a fault that has an id, or to reset faults")
		case a.Fault != nil:
			_, err = faults.Decode(a.Fault, g, l.Replicas())
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// NoteAct adds an act to the run's folder.
func (r *Record) NoteAct(a *faults.Act) error {
	if err := r.note(ActsFile, a); err != nil {
		return err
	}
	r.Report.Acts = append(r.Report.Acts, *a)
	return nil
}
