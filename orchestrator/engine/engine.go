// SPDX-License-Identifier: Apache-2.0

// Package engine is the interface to whatever runs a lab's nodes: start them, find them,
// remove them. Everything an engine makes is marked with its lab, so that what a lab left
// behind is found by searching the host and not from a record.
package engine

import (
	"context"
	"errors"
	"strconv"
)

// ErrUnavailable says that an engine cannot be reached.
var ErrUnavailable = errors.New("engine is not available")

// NotReadyError is the reason why an engine cannot start nodes, with the remedy.
type NotReadyError struct{ Why, Remedy string }

// Error says both.
func (e *NotReadyError) Error() string { return e.Why + ": " + e.Remedy }

// Node is a node to start.
type Node struct {
	Name string
	Dir  string // of its own, for its sockets; the node's user owns it
	// Data is a folder for what the node keeps when it dies and is started again; the node's
	// user owns it. Engines with volumes use one of those in its place. Empty: the node keeps
	// nothing.
	Data string
	// Nodes is a folder that holds the folders of all nodes, which a controller calls; it may
	// look into it. Empty: the node is no controller.
	Nodes    string
	Replicas int // controllers the lab has, for one of them
}

// Command returns the arguments that the node's process is started with, and the folders as it
// sees them.
func (n *Node) Command(dir, data, nodes string) []string {
	args := []string{"node", "--dir", dir}
	if n.Data != "" {
		args = append(args, "--data", data)
	}
	if n.Nodes != "" {
		args = append(args, "--controller", n.Name, "--replicas", strconv.Itoa(n.Replicas), "--nodes", nodes)
	}
	return args
}

// Running is a node that was found.
type Running struct {
	Name string
	PID  int // in the caller's PID namespace; 0 if it has ended
}

// An Engine holds the nodes of labs.
type Engine interface {
	// Name is docker or netns.
	Name() string
	// Start starts nodes that do not run, in parallel. Before each effect it calls
	// intend, which fails if the effect must not happen.
	Start(ctx context.Context, lab string, nodes []Node, intend func(effect, object string) error) error
	// Find returns the nodes of a lab that exist, by name.
	Find(ctx context.Context, lab string) ([]Running, error)
	// Labs returns the labs of which anything exists.
	Labs(ctx context.Context) ([]string, error)
	// Remove removes nodes of a lab and returns when they are gone; if none is named, all,
	// and what they keep. Nothing to remove is no error.
	Remove(ctx context.Context, lab string, nodes ...string) error
	// Logs returns what a node wrote to its standard error.
	Logs(ctx context.Context, lab, node string) ([]byte, error)
}

// NodeMemory is the memory that a node may take of its server in a run, in bytes: one of quickstart has 25 MiB, and messages of its
// workloads come on top.
const NodeMemory = 48 << 20

// UID is the user and group that nodes run as: nobody else's.
const UID = 64420

// The marks of ownership: variables of a process's environment, labels of a container.
const (
	MarkLab  = "MCASTLAB_LAB"
	MarkNode = "MCASTLAB_NODE"
)
