// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// record holds the client's measurements of one row.
type record struct {
	Scheme int          `json:"scheme"` // index into Params.Schemes
	Size   int          `json:"size"`   // index into Params.Sizes
	Row    IO           `json:"row"`
	Source apps.Summary `json:"source"`
	Whole  apps.Summary `json:"whole"`
	Ended  vtime.Time   `json:"ended"`
}

// emit records the measurements, even if the IOs ended with an error.
func (c *client) emit(members []int, failed error) error {
	rec := record{Scheme: c.si, Size: c.zi, Ended: c.r.Now(), Row: IO{
		Mode: "write", Durability: c.p.Durability, Depth: c.p.Depth, Jobs: c.p.Jobs, Replicas: len(members), Lost: c.lostNames(), LostWhy: c.lostWhy(),
		Found: c.had, Copied: c.repairs, Problem: c.problem,
	}}
	if c.p.Random {
		rec.Row.Mode = "randwrite"
	}
	if failed != nil {
		rec.Row.Error = failed.Error()
	}
	var submit, cqe, whole []float64
	from, to := vtime.Never, vtime.Time(0)
	for _, j := range c.jobs {
		m := &j.measured
		for i := range m.whole {
			submit, cqe, whole = append(submit, m.submit[i].Microseconds()), append(cqe, m.cqe[i].Microseconds()), append(whole, m.whole[i].Microseconds())
		}
		from, to = min(from, m.from), max(to, m.to)
	}
	rec.Row.IOs = len(whole)
	if len(whole) > 0 {
		rec.Row.RuntimeUS = to.Sub(from).Microseconds()
		rec.Row.IOPS = float64(len(whole)) / rec.Row.RuntimeUS * 1e6
		rec.Row.Submit, rec.Source, rec.Whole = apps.Summarize(submit), apps.Summarize(cqe), apps.Summarize(whole)
		slices.Sort(whole)
		for _, p := range IOPercentiles() {
			rec.Row.Percentiles = append(rec.Row.Percentiles, whole[min(len(whole), max(1, int(math.Ceil(p*float64(len(whole))/100))))-1])
		}
		rec.Row.Deviation = deviation(whole, rec.Whole.Avg)
	}
	out, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	rankrun.Of(c.r).Emit(out)
	return nil
}

func deviation(samples []float64, mean float64) float64 {
	sum := 0.0
	for _, v := range samples {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(samples)))
}

// Reduce implements apps.App: a row for each scheme and block size that the client has
// recorded.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	var p Params
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("storage: read parameters: %w", err)
	}
	if p.Client < 0 || p.Client >= len(records) {
		return nil, nil
	}
	var rows []apps.Row
	for _, out := range records[p.Client] {
		var rec record
		if err := json.Unmarshal(out, &rec); err != nil {
			return nil, fmt.Errorf("storage: read record of the client: %w", err)
		}
		if rec.Scheme < 0 || rec.Scheme >= len(p.Schemes) || rec.Size < 0 || rec.Size >= len(p.Sizes) {
			return nil, fmt.Errorf("storage: a record has scheme %d and size %d, which do not exist", rec.Scheme, rec.Size)
		}
		ok := rec.Row.Problem == ""
		rows = append(rows, apps.Row{
			Workload: p.Workload, Scheme: p.Schemes[rec.Scheme], SizeBytes: p.Sizes[rec.Size], Ranks: len(records), Iterations: 1, Payload: "bytes",
			JCT: rec.Whole, Source: rec.Source, Verified: &ok, Details: &rec.Row, Ended: rec.Ended,
		})
	}
	return rows, nil
}

// Print implements apps.Printer. It prints each row in the format of fio, with lab time, followed by
// the lines that only this workload has.
func (a App) Print(_ []byte, rows []apps.Row) (string, error) {
	var b strings.Builder
	for _, r := range rows {
		o := apps.DetailsOf[IO](r)
		code := 0
		if o.Error != "" {
			code = 5 // EIO
		}
		bs := span(r.SizeBytes)
		fmt.Fprintf(&b, "%s.%s: (g=0): rw=%s, bs=(R) %s, (W) %s, (T) %s, ioengine=rdma, iodepth=%d\n", r.Workload, r.Scheme, o.Mode, bs, bs, bs, o.Depth)
		fmt.Fprintf(&b, "%s.%s: (groupid=0, jobs=%d): err=%2d\n", r.Workload, r.Scheme, o.Jobs, code)
		bytes := float64(r.SizeBytes) * float64(o.IOs)
		rate := 0.0
		if o.RuntimeUS > 0 {
			rate = bytes / o.RuntimeUS * 1e6
		}
		fmt.Fprintf(&b, "  write: IOPS=%s, BW=%s/s (%s/s)(%s/%.0fusec)\n", thousands(o.IOPS), iec(rate), si(rate), iec(bytes), o.RuntimeUS)
		if o.IOs > 0 {
			line := func(name string, min, max, avg, dev float64) {
				fmt.Fprintf(&b, "    %s (usec): min=%.3f, max=%.3f, avg=%.3f, stdev=%.3f\n", name, min, max, avg, dev)
			}
			fmt.Fprintf(&b, "    slat (usec): min=%.3f, max=%.3f, avg=%.3f\n", o.Submit.Min, o.Submit.Max, o.Submit.Avg)
			fmt.Fprintf(&b, "    cqe  (usec): min=%.3f, max=%.3f, avg=%.3f\n", r.Source.Min, r.Source.Max, r.Source.Avg)
			line(" lat", r.JCT.Min, r.JCT.Max, r.JCT.Avg, o.Deviation)
			percentiles(&b, o)
		}
		fmt.Fprintf(&b, "  durability=%s, replicas=%d, read back: %s\n", o.Durability, o.Replicas, verdict(o))
		if len(o.Lost) > 0 {
			fmt.Fprintf(&b, "  lost: %s\n", o.LostWhy)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

func verdict(o *IO) string {
	switch {
	case o.Problem != "":
		return "WRONG: " + o.Problem
	case o.Copied > 0:
		return fmt.Sprintf("equal, every acknowledged write is there, %d blocks copied in recovery", o.Copied)
	}
	return "equal, every acknowledged write is there"
}

// percentiles prints latencies three to a line, as fio does.
func percentiles(b *strings.Builder, o *IO) {
	b.WriteString("    lat percentiles (usec):\n")
	all := IOPercentiles()
	for i := 0; i < len(all) && i < len(o.Percentiles); i += 3 {
		var cells []string
		for k := i; k < min(i+3, len(all)); k++ {
			cells = append(cells, fmt.Sprintf("%5.2fth=[%9.2f]", all[k], o.Percentiles[k]))
		}
		fmt.Fprintf(b, "     | %s\n", strings.Join(cells, ", "))
	}
}

func span(bs int) string { return iec(float64(bs)) + "-" + iec(float64(bs)) }

// thousands prints a rate as fio does: 996, 41.3k, 1188k.
func thousands(v float64) string {
	switch {
	case v < 1000:
		return fmt.Sprintf("%.0f", v)
	case v < 100e3:
		return fmt.Sprintf("%.1fk", v/1000)
	}
	return fmt.Sprintf("%.0fk", v/1000)
}

func iec(v float64) string { return scaled(v, 1024, []string{"B", "KiB", "MiB", "GiB", "TiB"}) }
func si(v float64) string  { return scaled(v, 1000, []string{"B", "kB", "MB", "GB", "TB"}) }

func scaled(v, base float64, units []string) string {
	i := 0
	for v >= base && i < len(units)-1 {
		v /= base
		i++
	}
	if v == math.Trunc(v) || v >= 100 {
		return fmt.Sprintf("%.0f%s", v, units[i])
	}
	return fmt.Sprintf("%.1f%s", v, units[i])
}
