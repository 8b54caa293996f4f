// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package command

func enoughFiles() error { return nil }

// limitHint names the limit of the process that an error is due to. Only Linux says.
func limitHint(string) string { return "" }
