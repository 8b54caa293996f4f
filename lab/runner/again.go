// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/mcastlab/mcastlab/lab"
)

// ErrLeftOut is wrapped by the error of a run with Options.Check whose fast-forwarded repetition gives other results.
var ErrLeftOut = errors.New("the fast-forwarded run differs from the packet-by-packet run")

// again simulates a lab that has been simulated packet by packet, with every invariant checked, as it is without that: it leaves out
// repeated periods. Both have to be one run. Nothing is left of the second.
func (r *simulation) again(ctx context.Context, l *lab.Lab) error {
	o := r.o
	if o.NoSkip || len(o.Captures) > 0 || r.Trace != nil || len(o.Env.Programs) > 0 || o.Env.Delivered != nil {
		return nil // it would leave out nothing; or side effects of programs would happen twice
	}
	dir := filepath.Join(r.Report.RunDir, "again") // deleted with the run, should this be killed
	defer r.Folder.root.RemoveAll("again")         //nolint:errcheck // deleted with the run
	o.Base, o.Check, o.Progress, o.Ledger, o.Say = dir, false, nil, nil, nil
	second, err := Simulate(ctx, l, o)
	if err != nil {
		return fmt.Errorf("simulate the lab again without --check: %w", err)
	}
	var meta Meta
	if err := ReadJSON(filepath.Join(second.RunDir, "meta.json"), &meta); err != nil {
		return err
	}
	r.Meta.HopsLeftOut = meta.HopsLeftOut
	return sameRun(r.Report, second)
}

// sameRun returns the first difference between the report of a run and that of the same run
// fast-forwarded.
func sameRun(whole, less *Report) error {
	if whole.Digest != less.Digest {
		return fmt.Errorf("%w: the digest is %s, and not %s", ErrLeftOut, less.Digest, whole.Digest)
	}
	for _, c := range []struct {
		what        string
		whole, less any
	}{
		{"results", whole.Results, less.Results}, {"counters", whole.Counters, less.Counters}, {"faults", whole.Faults, less.Faults}, {"texts", whole.Texts, less.Texts},
	} {
		a, err := json.Marshal(c.whole)
		if err != nil {
			return fmt.Errorf("compare %s: %w", c.what, err)
		}
		b, err := json.Marshal(c.less)
		if err != nil {
			return fmt.Errorf("compare %s: %w", c.what, err)
		}
		if !bytes.Equal(a, b) {
			return fmt.Errorf("%w: the digest is the same, and the %s differ", ErrLeftOut, c.what)
		}
	}
	return nil
}
