// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// ActsFile is the file of a run folder with the manual faults (faults.Act) of the run. A run of the same
// lab that is given the file replays them at the same instants.
const ActsFile = "acts.jsonl"

// actsEnd is the last line of ActsFile.
type actsEnd struct {
	End *uint64 `json:"end"` // lines before it
	Sum string  `json:"crc32c"`
}

// ReadActs reads a file of acts on a lab. whole reports whether the file has its end: one that was written by hand, by an
// older version or by a run that was killed has none.
func ReadActs(file string, l *lab.Lab) (all []faults.Act, whole bool, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, false, fmt.Errorf("read manual faults: %w", err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, false, fmt.Errorf("build topology: %w", err)
	}
	number := 0
	var sum checksum.Lines
	for line := range bytes.Lines(b) {
		number++
		var end actsEnd
		if json.Unmarshal(line, &end) == nil && end.End != nil {
			_ = sum.End(*end.End, end.Sum) // kept by sum
			continue
		}
		sum.Add(bytes.TrimSuffix(line, []byte{'\n'}))
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
			return nil, false, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		all = append(all, a)
	}
	if err := sum.Err(); err != nil && !errors.Is(err, checksum.ErrNone) {
		return nil, false, fmt.Errorf("%s: %w", file, err)
	}
	return all, sum.Ended() && sum.Err() == nil, nil
}

// endActs ends the file of acts, if there is one.
func (r *Record) endActs() error {
	if len(r.Report.Acts) == 0 {
		return nil
	}
	b, err := r.Folder.root.ReadFile(ActsFile)
	if err != nil {
		return fmt.Errorf("end %s: %w", ActsFile, err)
	}
	n := uint64(bytes.Count(b, []byte{'\n'}))
	return r.note(ActsFile, actsEnd{End: &n, Sum: checksum.Sum(b)})
}

// NoteAct adds an act to the run's folder.
func (r *Record) NoteAct(a *faults.Act) error {
	if err := r.note(ActsFile, a); err != nil {
		return err
	}
	r.Report.Acts = append(r.Report.Acts, *a)
	return nil
}
