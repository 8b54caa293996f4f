//go:build !failpoint

// Package failpoint lets tests make things go wrong at a given step. Builds without the
// tag failpoint, all releases among them, have nothing of it but empty functions.
package failpoint

// Hit is a step of a command that a test may end.
func Hit(string) {}

// Node is a step of a node's process that a test may end.
func Node(string) {}
