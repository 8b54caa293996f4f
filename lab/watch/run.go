// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/lab/report"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// Bounds of following a run's folder.
const (
	runEvery = time.Second // at least, between two checks of its files
	runShare = 4           // as long as a look took, times this, passes until the next
)

// Run returns a source that shows a run's folder: all of it, and again each time when its files have changed, while
// the run is running.
func Run(dir string) Source {
	return func(ctx context.Context, send Send) error {
		var last []string
		for {
			before := time.Now()
			killed := last != nil && killed(dir) // its files are complete then
			now, err := stamps(dir)
			if err != nil {
				return err
			}
			if killed || !slices.Equal(now, last) {
				f, err := report.ReadFilm(dir)
				if err != nil {
					return err
				}
				if err := send("film", f); err != nil {
					return err
				}
				if last = now; f.Status != runner.StatusRunning {
					return nil
				}
			} else if err := send("alive", nil); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(max(runEvery, runShare*time.Since(before))):
			}
		}
	}
}

// killed reports whether a run that had not ended has been killed.
func killed(dir string) bool {
	var m runner.Meta
	return runner.ReadJSON(filepath.Join(dir, "meta.json"), &m) == nil && runner.StatusOf(dir, &m) == runner.StatusKilled
}

// stamps returns the names, sizes and times of a folder's files.
func stamps(dir string) (all []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the run: %w", err)
	}
	for _, e := range entries {
		switch st, err := e.Info(); {
		case errors.Is(err, fs.ErrNotExist): // it has gone meanwhile
		case err != nil:
			return nil, fmt.Errorf("look at the run: %w", err)
		default:
			all = append(all, fmt.Sprint(e.Name(), st.Size(), st.ModTime().UnixNano()))
		}
	}
	return all, nil
}
