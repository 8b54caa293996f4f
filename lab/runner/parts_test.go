// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/rank"
)

// jobRunner is the interface that a whole simulation and one in parts share.
type jobRunner interface {
	Run(sim.Job) error
	Digest() uint64
}

// runJobs runs the workloads of a lab and returns the records of its ranks, and the digest after each
// workload.
func runJobs(t *testing.T, l *lab.Lab, make func(sim.Config) (jobRunner, error)) (records map[string][]string, digests []string) {
	t.Helper()
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	n, err := make(sim.Config{Spec: labspec.Fabric(l, g), OutOfBand: vtime.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	all, err := Prepare(l, g, apps.Env{})
	if err != nil {
		t.Fatal(err)
	}
	records = map[string][]string{}
	for _, w := range all {
		err := n.Run(sim.Job{
			Name: w.Label, Hosts: w.Hosts, Params: labspec.RankParams(l), Spare: w.Spare,
			Program: func(k *rank.Rank) error { return w.App.Run(k, w.Params) },
			Emit:    func(rank int, r []byte) { k := fmt.Sprint(w.Label, rank); records[k] = append(records[k], string(r)) },
		})
		digests = append(digests, fmt.Sprintf("%s %v %016x", w.Label, err, n.Digest()))
	}
	return records, digests
}

// TestParts: a lab in parts of one node each has the digest of the whole simulation, workload after workload, and its
// ranks record the same. TestWorkers has more labs, in larger parts.
func TestParts(t *testing.T) {
	for _, file := range []string{"star", "alltoall", "hpl"} {
		t.Run(file, func(t *testing.T) {
			if testing.Short() && file == "hpl" {
				t.Skip("takes long, and one goroutine runs at a time")
			}
			l, err := lab.Read(filepath.Join("../../examples", file+".mcl.yml"))
			if err != nil {
				t.Fatal(err)
			}
			whole, want := runJobs(t, l, func(c sim.Config) (jobRunner, error) { return sim.New(c) })
			parts, got := runJobs(t, l, func(c sim.Config) (jobRunner, error) {
				of := make([]int, len(c.Graph.Nodes))
				for i := range of {
					of[i] = i
				}
				return sim.NewParts(c, of, len(of))
			})
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("in parts %s, whole %s", got[i], want[i])
				}
			}
			for k := range whole {
				if !slices.Equal(whole[k], parts[k]) {
					t.Errorf("%s records %q in parts, %q in the whole", k, parts[k], whole[k])
				}
			}
		})
	}
}
