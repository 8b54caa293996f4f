// SPDX-License-Identifier: Apache-2.0

//go:build !failpoint

// Package failpoint lets tests inject a failure before and after each effect a command
// has on the machine. Builds without the tag failpoint, all releases among them, have
// nothing of it but functions that do nothing of their own.
package failpoint

// At has an effect, which may be made to go wrong before it and after it.
func At(_ string, do func() error) error { return do() }

// Node is a step of a node's process that a test may end.
func Node(string) {}
