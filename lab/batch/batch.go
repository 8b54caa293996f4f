// SPDX-License-Identifier: Apache-2.0

// Package batch runs many labs in the simulator, several at a time, and keeps the result of each, so that an
// interrupted batch can be resumed.
package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// JobsMax is the number of labs that may run at a time: each may take gigabytes.
const JobsMax = 64

// Job is a lab to run.
type Job struct {
	Name  string
	Takes float64 // how long, in any unit that all jobs share
}

// Done is the result of a job.
type Done struct {
	Wall  float64 // seconds
	Again bool    // it had been done before
}

// Run runs jobs, atATime of them at a time, and reports its progress; say may be nil. Jobs are begun in their order.
// It continues after an error and returns all of them; if ctx ends, it begins no more and returns the reason.
func Run(ctx context.Context, jobs []Job, atATime int, say func(format string, args ...any), do func(ctx context.Context, i int) (Done, error)) error {
	p := estimate{say: say, begun: time.Now(), all: len(jobs)}
	for _, j := range jobs {
		p.left += j.Takes
	}
	var mu sync.Mutex
	failed := make([]error, len(jobs))
	todo := make(chan int)
	var workers sync.WaitGroup
	for range max(1, atATime) {
		workers.Go(func() {
			for i := range todo {
				d, err := do(ctx, i)
				mu.Lock()
				if failed[i] = err; err == nil {
					p.done(&jobs[i], d)
				}
				mu.Unlock()
			}
		})
	}
	for i := range jobs {
		if ctx.Err() == nil {
			todo <- i
		}
	}
	close(todo)
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(failed...)
}

// estimate is the progress of a batch, with the time that the rest takes.
type estimate struct {
	say   func(format string, args ...any)
	begun time.Time
	all   int
	made  int
	left  float64 // as the jobs' own figures have it
	ran   float64 // of them, those of jobs that were not done before
}

func (p *estimate) done(j *Job, d Done) {
	p.made++
	p.left -= j.Takes
	if p.say == nil {
		return
	}
	if d.Again {
		p.say("%d of %d: %s: measured before", p.made, p.all, j.Name)
		return
	}
	p.ran += j.Takes
	rest := time.Since(p.begun).Seconds() / p.ran * p.left // this server's speed
	p.say("%d of %d: %s: %.1f s; about %.0f s are left", p.made, p.all, j.Name, d.Wall, rest)
}

// Simulate runs a lab whose folder is not kept: the run replaces dir, which may hold the rest of a killed run, and
// dir is deleted afterwards. The report is there also if only the removal failed.
func Simulate(ctx context.Context, l *lab.Lab, dir string, o runner.Options) (report *runner.Report, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.Base = dir
	if report, err = runner.Simulate(ctx, l, o); report != nil {
		report.Nodes = nil // it is not used, and large over all runs of a batch
	}
	return report, err
}

// Recall returns the value in a file, or nil if the file cannot be read as one, is damaged, or does not hold the
// value that is asked for.
func Recall[T any](file string, asked func(*T) bool) *T {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	v := new(T)
	if checksum.CheckObject(b) != nil || json.Unmarshal(b, v) != nil || !asked(v) {
		return nil
	}
	return v
}

// Fingerprint returns a hash of this program. Its version would not do: builds between two commits have the
// same.
func Fingerprint() (string, error) {
	name, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the program: %w", err)
	}
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read the program: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read the program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Key identifies measurements: those of other programs, labs or questions have other keys.
func Key(program string, text []byte, asked []string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%q", program, text, asked)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
