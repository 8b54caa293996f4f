// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// Reduce implements apps.App. It returns a row for each test that all its ranks have ended.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	var p Params
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("hpl: read parameters: %w", err)
	}
	byTest := make([]map[int]*record, len(p.Tests))
	for i := range byTest {
		byTest[i] = map[int]*record{}
	}
	for i, rank := range records {
		for _, out := range rank {
			var rec record
			if err := json.Unmarshal(out, &rec); err != nil {
				return nil, fmt.Errorf("hpl: read record of rank %d: %w", i, err)
			}
			if rec.Test < 0 || rec.Test >= len(byTest) {
				return nil, fmt.Errorf("hpl: rank %d has a record of test %d of %d", i, rec.Test, len(byTest))
			}
			byTest[rec.Test][i] = &rec
		}
	}
	var rows []apps.Row
	for i := range p.Tests {
		if t := &p.Tests[i]; len(byTest[i]) == t.P*t.Q {
			all := make([]*record, t.P*t.Q)
			for id := range all {
				all[id] = byTest[i][id]
			}
			rows = append(rows, reduceRow(&p, t, all))
		}
	}
	return rows, nil
}

func reduceRow(p *Params, t *Test, all []*record) apps.Row {
	start, end := all[0].Start, all[0].End
	s := &Solve{N: t.N, NB: t.NB, P: t.P, Q: t.Q, Variant: t.TV(), Bcast: t.Bcast, Swap: t.Swap, Depth: t.Depth, Epochs: len(all[0].Panels)}
	lu := sha256.New()
	var factor vtime.Duration
	for _, r := range all {
		start, end, factor = min(start, r.Start), max(end, r.End), max(factor, r.Factor)
		lu.Write([]byte(r.LU))
		s.BroadcastBytes += r.CastBytes
		s.SwapBytes += r.SwapBytes
	}
	us := end.Sub(start).Microseconds()
	s.BroadcastUS, s.SwapUS, s.FactorUS = broadcasts(t, all).Microseconds(), swaps(t, all).Microseconds(), factor.Microseconds()
	row := apps.Row{
		Workload: p.Workload, Scheme: t.Label, SizeBytes: t.N * (t.N + 1) * word, Ranks: len(all), Iterations: 1, Payload: "bytes",
		JCT: apps.Summarize([]float64{us}), Source: apps.Summarize([]float64{us}), Details: s, Ended: end,
	}
	if p.CostOnly {
		row.Payload = "phantom"
	} else {
		s.Factors = fmt.Sprintf("%x", lu.Sum(nil))
	}
	if n := float64(t.N); s.Epochs == (t.N+t.NB-1)/t.NB && us > 0 {
		g := (2.0/3*n*n*n + 3.0/2*n*n) / us / 1000
		s.GFlops = &g
	}
	if m := all[0].Norms; m != nil {
		r := residual(all[0].Error, m, t.N)
		ok := r < p.Threshold
		s.Residual, s.Passed, s.Norms, row.Verified = &r, &ok, m, &ok
	}
	return row
}

// broadcasts returns the sum over the panels of the time from the post to the last receiver, in
// the slowest process row.
func broadcasts(t *Test, all []*record) (sum vtime.Duration) {
	for k := range all[0].Panels {
		var worst vtime.Duration
		for row := range t.P {
			g := &geometry{Test: *t}
			post := all[g.rankAt(row, k%t.Q)].Panels[k].Posted
			for col := range t.Q {
				worst = max(worst, all[g.rankAt(row, col)].Panels[k].Received.Sub(post))
			}
		}
		sum += worst
	}
	return sum
}

// swaps returns the largest sum of the row swaps of a process column. A row swap lasts from when
// its last process begins to when its last process ends.
func swaps(t *Test, all []*record) (worst vtime.Duration) {
	g := &geometry{Test: *t}
	for col := range t.Q {
		var sum vtime.Duration
		for i := range all[g.rankAt(0, col)].Swaps {
			var begun, ended vtime.Time
			for row := range t.P {
				s := all[g.rankAt(row, col)].Swaps[i]
				begun, ended = max(begun, s.Begun), max(ended, s.Ended)
			}
			sum += ended.Sub(begun)
		}
		worst = max(worst, sum)
	}
	return worst
}

// Print implements apps.Printer. It prints the tests in HPL's format, followed by a table of the
// phases. Times have more digits than HPL's, because a simulated system may be small.
func (a App) Print(raw []byte, rows []apps.Row) (string, error) {
	var p Params
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", fmt.Errorf("hpl: read parameters: %w", err)
	}
	double, single := strings.Repeat("=", 80)+"\n", strings.Repeat("-", 80)+"\n"
	var b strings.Builder
	passed, failed := 0, 0
	for _, r := range rows {
		s := apps.DetailsOf[Solve](r)
		b.WriteString(double + "T/V                N    NB     P     Q               Time                 Gflops\n" + single)
		gflops := "-"
		if s.GFlops != nil {
			gflops = fmt.Sprintf("%.3e", *s.GFlops)
		}
		fmt.Fprintf(&b, "%s%12d %5d %5d %5d %18.6f %22s\n", s.Variant, s.N, s.NB, s.P, s.Q, r.JCT.Avg/1e6, gflops)
		if s.Residual == nil {
			continue
		}
		verdict := "FAILED"
		if *s.Passed {
			verdict = "PASSED"
			passed++
		} else {
			failed++
		}
		fmt.Fprintf(&b, "%s||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)= %16.7f ...... %s\n", single, *s.Residual, verdict)
	}
	fmt.Fprintf(&b, "%s\nFinished %6d tests with the following results:\n", double, len(rows))
	if passed+failed > 0 {
		fmt.Fprintf(&b, "         %6d tests completed and passed residual checks,\n", passed)
		fmt.Fprintf(&b, "         %6d tests completed and failed residual checks,\n", failed)
	} else {
		fmt.Fprintf(&b, "         %6d tests completed without checking,\n", len(rows))
	}
	fmt.Fprintf(&b, "         %6d tests skipped because of illegal input values.\n%s\nEnd of Tests.\n%s\n", 0, single, double)
	printPhases(&b, rows)
	return b.String(), nil
}

func printPhases(b *strings.Builder, rows []apps.Row) {
	const head = "# Workload.Scheme"
	width := len(head)
	for _, r := range rows {
		width = max(width, len(r.Workload+"."+r.Scheme))
	}
	fmt.Fprintf(b, "%-*s %-10s %12s %14s %14s %14s %7s\n", width, head, "Swap", "Time(us)", "Broadcast(us)", "Row swap(us)", "Factor(us)", "Panels")
	for _, r := range rows {
		s := apps.DetailsOf[Solve](r)
		fmt.Fprintf(b, "%-*s %-10s %12.2f %14.2f %14.2f %14.2f %7d\n", width, r.Workload+"."+r.Scheme, s.Swap, r.JCT.Avg, s.BroadcastUS, s.SwapUS, s.FactorUS, s.Epochs)
	}
}
