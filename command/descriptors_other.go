// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package command

// keepDescriptors has no effect here: this system runs no labs, and simulations start no process.
func keepDescriptors() error { return nil }
