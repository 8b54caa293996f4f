package sim_test

import (
	"encoding/json"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/rankhost"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

func TestSmoke(t *testing.T) {
	g, err := topo.FatTree(4, topo.LinkParams{Rate: 100e9, Delay: 600 * vtime.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Check: true, Spec: fabric.Spec{Graph: g, Seed: 1, Switch: fabric.Switch{
		Latency:  400 * vtime.Nanosecond,
		Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
	}, NIC: virtrnic.Settings{AckEvery: 16}}})
	if err != nil {
		t.Fatal(err)
	}
	p := bcast.Params{Workload: "bcast", Sizes: []int{64, 4096, 65536, 1 << 20, 4 << 20}, Schemes: []bcast.Scheme{
		{Label: "cepheus", Name: "cepheus"}, {Label: "chain", Name: "chain"}, {Label: "binomial", Name: "binomial"}, {Label: "unicast", Name: "unicast"},
	}}
	raw, _ := json.Marshal(p)
	outs := make([][][]byte, 16)
	hosts := make([]int, 16)
	for i := range hosts {
		hosts[i] = i
	}
	app := bcast.App{}
	err = n.Run(sim.Job{Name: "bcast", Hosts: hosts, Params: rankhost.Params{MTU: 4096, TrafficClass: 26<<2 | 2, Timeout: 10, RetryCnt: 7, RNRRetry: 6, MinRNRTimer: 12, Activate: true},
		Program: func(r *rank.Rank) error { return app.Run(r, raw) },
		Emit:    func(rank int, rec []byte) { outs[rank] = append(outs[rank], rec) }})
	if err != nil {
		t.Fatal(err)
	}
	var rows []apps.Row
	rows, err = app.Reduce(raw, outs)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Logf("%-10s %8d  jct %10.3f src %10.3f ok %v n %d", r.Scheme, r.SizeBytes, r.JCT.Avg, r.Source.Avg, *r.Verified, r.Iterations)
	}
	t.Logf("%+v digest %x", n.Stats(), n.Digest())
}
