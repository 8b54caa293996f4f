// SPDX-License-Identifier: Apache-2.0

// Package house holds the rules of the tree: style, pages made from the source, lists of the Makefile. Each finding says
// what to do instead; CONTRIBUTING.md has the reasons. TestLabFileRuns alone runs labs, small ones on the event clock.
package house

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests in the module's folder: the paths that they read and print are those of the tree.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
