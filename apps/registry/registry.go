// SPDX-License-Identifier: Apache-2.0

// Package registry lists all kinds of workloads. A new kind takes one field of Workload here; all
// else about it is in its settings, in the package of its program.
package registry

import (
	"reflect"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/allgather"
	"github.com/mcastlab/mcastlab/apps/alltoall"
	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/apps/command"
	"github.com/mcastlab/mcastlab/apps/flows"
	"github.com/mcastlab/mcastlab/apps/fsdp"
	"github.com/mcastlab/mcastlab/apps/hpl"
	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/apps/program"
	"github.com/mcastlab/mcastlab/apps/reducescatter"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/apps/storage"
	"github.com/mcastlab/mcastlab/rank"
)

// Workload is an entry of a lab file's workloads. The field of its kind is set and the others are
// nil. The YAML key of a field is the name of the kind's program.
type Workload struct {
	Bcast         *bcast.Settings         `yaml:"bcast" json:"bcast,omitzero" doc:"MPI-Bcast benchmark"`
	Allgather     *allgather.Settings     `yaml:"allgather" json:"allgather,omitzero" doc:"MPI-Allgather benchmark"`
	ReduceScatter *reducescatter.Settings `yaml:"reduce-scatter" json:"reduceScatter,omitzero" doc:"MPI-Reduce-scatter benchmark"`
	Alltoall      *alltoall.Settings      `yaml:"alltoall" json:"alltoall,omitzero" doc:"MPI-Alltoall benchmark"`
	FSDP          *fsdp.Settings          `yaml:"fsdp" json:"fsdp,omitzero" doc:"Allgather and Reduce-scatter at the same time, on the same ranks"`
	HPL           *hpl.Settings           `yaml:"hpl" json:"hpl,omitzero" doc:"High-Performance Linpack benchmark"`
	Storage       *storage.Settings       `yaml:"storage" json:"storage,omitzero" doc:"replicated write service (docs/storage.md)"`
	Program       *program.Settings       `yaml:"program" json:"program,omitzero" doc:"a Go program of your own in the binary that runs the lab (docs/programs.md)"`
	ManyToMany    *manycast.Settings      `yaml:"many-to-many" json:"manyToMany,omitzero" doc:"messages of many hosts to one group, or of each to its own, on an m-port n-tree; in virtual time only"`
	Flows         *flows.Settings         `yaml:"flows" json:"flows,omitzero" doc:"flows that begin and end while others continue"`
	Command       *command.Settings       `yaml:"command" json:"command,omitzero" doc:"a program of this server at each rank, in running labs (docs/libibverbs.md)"`
}

// Entry is a kind of workload and its key.
type Entry struct {
	Name string
	Kind apps.Kind
}

// Given returns the kinds that are set. A valid entry has exactly one.
func (w *Workload) Given() (all []Entry) {
	for v, i := reflect.ValueOf(*w), 0; i < v.NumField(); i++ {
		if f := v.Field(i); !f.IsNil() {
			all = append(all, Entry{v.Type().Field(i).Tag.Get("yaml"), f.Interface().(apps.Kind)})
		}
	}
	return all
}

// Chosen returns the kind of a valid workload.
func (w *Workload) Chosen() Entry { return w.Given()[0] }

// Label returns the workload's name in reports.
func (w *Workload) Label() string { return setOf(w.Chosen().Kind).FieldByName("Label").String() }

// Ranks returns the hosts that take part.
func (w *Workload) Ranks() setting.Hosts {
	if f := setOf(w.Chosen().Kind).FieldByName("Ranks"); f.IsValid() {
		return f.Interface().(setting.Hosts)
	}
	return nil
}

// Phantom reports whether the workload transfers lengths without bytes.
func (e Entry) Phantom() bool {
	if c, ok := e.Kind.(apps.CostOnly); ok && c.NoBytes() {
		return true
	}
	f := setOf(e.Kind).FieldByName("Memory")
	return f.IsValid() && f.String() == string(rank.MemoryPhantom)
}

// Longest returns the largest of the workload's message sizes, in bytes, or 0 if it has no list of them.
func (e Entry) Longest() (most int64) {
	f := setOf(e.Kind).FieldByName("Sizes")
	if !f.IsValid() {
		return 0
	}
	for i := range f.Len() {
		most = max(most, f.Index(i).Int())
	}
	return most
}

// setOf returns the struct of a kind's settings.
func setOf(k apps.Kind) reflect.Value { return reflect.ValueOf(k).Elem() }

// Of returns the workload whose kind is k.
func Of(k apps.Kind) (w Workload) {
	v := reflect.ValueOf(&w).Elem()
	for i := range v.NumField() {
		if v.Field(i).Type() == reflect.TypeOf(k) {
			v.Field(i).Set(reflect.ValueOf(k))
		}
	}
	return w
}

// All returns all kinds with empty settings.
func All() (all []Entry) {
	t := reflect.TypeFor[Workload]()
	for i := range t.NumField() {
		all = append(all, Entry{t.Field(i).Tag.Get("yaml"), reflect.New(t.Field(i).Type.Elem()).Interface().(apps.Kind)})
	}
	return all
}

// App returns the program of the kind with the given name. ok is false if there is no such kind.
func App(name string, e apps.Env) (app apps.App, ok bool) {
	for _, x := range All() {
		if x.Name == name {
			return x.Kind.App(e), true
		}
	}
	return nil, false
}

// SchemeNames returns the names of schemes that are valid at a path below the settings of a kind,
// or nil if the kind has no schemes.
func SchemeNames(kind, path string) []string {
	for _, x := range All() {
		if x.Name != kind {
			continue
		}
		switch k := x.Kind.(type) {
		case apps.Collective:
			return k.Algorithms().Names
		case apps.Schemed:
			return k.SchemeNames(path)
		}
	}
	return nil
}

// Columned returns the details that add columns to tables and CSV files, in the order of their
// columns. New ones must be added at the end, so that existing columns keep their place.
func Columned() []apps.Columned {
	return []apps.Columned{&manycast.Spread{}, &fsdp.Overlap{}, &flows.Course{}}
}

// Trial returns the smaller form of a workload that is run to measure the capacity of the computer,
// and the label of its scheme. It returns nil if there is no scheme with the index t.Scheme.
func (w *Workload) Trial(t apps.Trial) (k apps.Kind, scheme string) {
	if own, ok := w.Chosen().Kind.(apps.Trier); ok {
		return own.Trial(t)
	}
	return bcast.StandIn(w.Label(), w.Ranks()).Trial(t)
}
