// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// MetaSchema names the format of meta.json.
const MetaSchema = "mcastlab/meta/v1"

// Status is the state of a run: running, or the way it ended.
type Status string

// The states of a run.
const (
	StatusRunning     Status = "running" // or killed before it could record more
	StatusOK          Status = "ok"
	StatusFailed      Status = "failed" // an expectation does not hold, or data did not verify
	StatusInterrupted Status = "interrupted"
	StatusError       Status = "error"
	// StatusKilled is the status of a run whose process has ended without recording its outcome. No file
	// has it: see StatusOf.
	StatusKilled Status = "killed"
)

// Meta is meta.json: the lab, seed, version and machine of a run, and how it ended.
type Meta struct {
	Schema  string `json:"schema"`
	Lab     string `json:"lab"`
	Runtime string `json:"runtime"`
	Seed    uint64 `json:"seed"`
	Version string `json:"version"`
	Go      string `json:"go"`
	System  string `json:"system"`
	Host    string `json:"host"`
	CPUs    int    `json:"cpus"`
	Workers int    `json:"workers,omitempty"` // parts of a simulation that ran at the same time
	Status  Status `json:"status"`
	Error   string `json:"error,omitempty"`
	Locked  bool   `json:"locked,omitempty"` // while it runs, its process has a lock on the folder

	Started     time.Time `json:"started"`
	WallSeconds float64   `json:"wall_seconds"`
	LabUS       float64   `json:"lab_us"`
	MemoryBytes uint64    `json:"memory_bytes"` // the most that the process had from the system

	Events       uint64 `json:"events"`
	EventsInTurn uint64 `json:"events_in_turn,omitempty"` // with workers: those that had to be handled one after the other
	PacketHops   uint64 `json:"packet_hops"`
	HopsLeftOut  uint64 `json:"packet_hops_left_out,omitempty"` // of those, in periods that repeat and were left out
	AckHops      uint64 `json:"ack_hops"`
	Rounds       uint64 `json:"rounds,omitempty"`      // in which containers in virtual time have advanced
	Grants       uint64 `json:"grants,omitempty"`      // nodes that have advanced in them, all rounds together
	RoundBytes   uint64 `json:"round_bytes,omitempty"` // bytes of the messages between servers for that
	FramesLost   uint64 `json:"frames_lost_to_faults"`
	CaptureCut   uint64 `json:"capture_frames_cut"`
	EventsNotIn  uint64 `json:"event_lines_cut"`
	EventsCut    uint64 `json:"events_missing,omitempty"` // events that nodes had no room for
	EventsLate   uint64 `json:"events_late,omitempty"`    // lines that are not in the order of time
	TraceNotIn   int    `json:"trace_lines_cut,omitempty"`
	CaptureFiles int    `json:"capture_files"`
}

// newMeta describes a run that starts now.
func newMeta(lab, runtimeName string, seed uint64) Meta {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return Meta{
		Schema: MetaSchema, Lab: lab, Runtime: runtimeName, Seed: seed, Version: Version(), Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Host: host, CPUs: runtime.NumCPU(), Status: StatusRunning, Started: time.Now().UTC(),
	}
}

// StatusOf returns the status of the run of a folder, as its meta.json has it, or that it was killed.
func StatusOf(dir string, m *Meta) Status {
	if m.Status != StatusRunning || !m.Locked || held(dir) {
		return m.Status
	}
	var now Meta // it may have ended between the reading of meta.json and now
	if err := ReadJSON(filepath.Join(dir, "meta.json"), &now); err == nil && now.Status != StatusRunning {
		return now.Status
	}
	return StatusKilled
}

// memoryBytes returns the memory that the process has had from the system: it gives back no addresses,
// so this does not shrink.
func memoryBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys
}
