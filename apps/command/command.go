// SPDX-License-Identifier: Apache-2.0

// Package command runs programs of this server at a lab's hosts as workloads: perftest, UCX, MPI programs and whatever
// else uses libibverbs. Their processes are the orchestrator's to start; here are their settings and their report.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// Name is the workload's name in lab files.
const Name = "command"

// Settings are a program of this server in a lab file.
type Settings struct {
	Label    string           `yaml:"label" json:"label,omitzero" doc:"name in reports; default: the program's"`
	Run      []string         `yaml:"run" json:"run,omitzero" doc:"a program of this server and its arguments; no shell reads them" required:"true"`
	Launcher string           `yaml:"launcher" json:"launcher,omitzero" doc:"launcher of the ranks: none, each rank is a process of its own; or mpirun of Open MPI" default:"none" enum:"none,mpirun"`
	Ranks    setting.Hosts    `yaml:"ranks" json:"ranks,omitzero" doc:"hosts that take part: all, or names, patterns and ranges: h3, h*, h0..h7" default:"all"`
	PerHost  int              `yaml:"per-host" json:"perHost,omitzero" doc:"ranks on each host; with 2 on h0 and h1, ranks 0 and 2 are on h0" default:"1"`
	Timeout  setting.Duration `yaml:"timeout" json:"timeout,omitzero" doc:"longest run of the program, on the wall clock; then it is killed, and the row fails" default:"60s"`
}

// Bounds of the settings. A host with more ranks is a mistake; a run that takes more than a day is one, too.
const (
	perHostMax = 64
	timeoutMax = 24 * 3600 * vtime.Second
)

// Check implements apps.Kind.
func (w *Settings) Check(c *setting.Checker, p string) {
	switch {
	case len(w.Run) == 0 || w.Run[0] == "":
		c.Failf(p+".run", "a command needs a program to run: run: [ib_write_bw]")
		return
	case strings.ContainsRune(strings.Join(w.Run, ""), 0):
		c.Failf(p+".run", "no argument of a program can have a byte of zero")
	}
	if w.Label == "" {
		w.Label = nameOf(w.Run)
	}
	c.Label(p, w.Label)
	if w.PerHost < 1 || w.PerHost > perHostMax {
		c.Failf(p+".per-host", "%d ranks on a host are not 1 to %d", w.PerHost, perHostMax)
	}
	if d := vtime.Duration(w.Timeout); d < vtime.Second || d > timeoutMax {
		c.Failf(p+".timeout", "a timeout of %v is not 1s to 86400s", w.Timeout)
	}
	c.NoneOutside(p, c.AnyRanks(p, w.Ranks))
}

// nameOf returns the name of a program in reports.
func nameOf(run []string) string {
	if base := path.Base(run[0]); setting.LabelOK(base) {
		return base
	}
	return Name
}

// params are the workload's parameters.
type params struct {
	Workload string `json:"workload"`
	Scheme   string `json:"scheme"`
	Ranks    int    `json:"ranks"`
	MPI      bool   `json:"mpi"`
}

// App implements apps.Kind.
func (*Settings) App(apps.Env) apps.App { return App{} }

// HostProgram implements apps.HostPrograms.
func (w *Settings) HostProgram() apps.HostProgram {
	return apps.HostProgram{Argv: w.Run, MPI: w.Launcher == "mpirun", Timeout: vtime.Duration(w.Timeout)}
}

// Prepare implements apps.Kind: a command is one step.
func (w *Settings) Prepare(s *apps.Setup) (apps.Prepared, error) {
	var hosts []int
	for range w.PerHost {
		hosts = append(hosts, w.Ranks.Resolve(s.Graph)...)
	}
	return apps.Prepared{
		Input: params{Workload: w.Label, Scheme: nameOf(w.Run), Ranks: len(hosts), MPI: w.Launcher == "mpirun"}, Hosts: hosts, Steps: 1,
	}, nil
}

// Links implements apps.Kind. The use that a program makes of its time is unknown.
func (*Settings) Links(*topo.Graph, int, *apps.Row) int { return 0 }

// Only implements apps.Kind: a command is one.
func (*Settings) Only(*apps.Row) apps.Kind { return nil }

// App reports programs of this server. It implements apps.App.
type App struct{}

// Run implements apps.App: there is nothing to run in a process of mcastlab's.
func (App) Run(*rank.Rank, []byte) error {
	return errors.New("a program of this server runs in a process of its own")
}

// Reduce implements apps.App. It returns one row, or none if the run was interrupted before all programs had ended.
func (App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	var p params
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("command: read parameters: %w", err)
	}
	var all apps.Exits
	for i, lines := range records {
		for _, line := range lines {
			var x apps.Exit
			if err := json.Unmarshal(line, &x); err != nil {
				return nil, fmt.Errorf("command: read record of rank %d: %w", i, err)
			}
			all = append(all, x)
		}
	}
	want := p.Ranks
	if p.MPI {
		want = 1 // mpirun's
	}
	if len(all) < want {
		return nil, nil
	}
	ok, from, to := true, all[0].From, all[0].To
	for i := range all {
		x := &all[i]
		ok, from, to = ok && !x.Failed(), min(from, x.From), max(to, x.To)
	}
	row := apps.Row{
		Workload: p.Workload, Scheme: p.Scheme, Payload: apps.PayloadOwn, Ranks: p.Ranks, Iterations: 1,
		JCT: apps.Summarize([]float64{to.Sub(from).Microseconds()}), Verified: &ok, Details: &all,
		Began: from, Ended: to, // later activity of the lab is none of the row's
	}
	row.Source = row.JCT
	return []apps.Row{row}, nil
}
