// SPDX-License-Identifier: Apache-2.0

package machinetest

import (
	"testing"

	"github.com/mcastlab/mcastlab/internal/test/golden"
)

// Golden compares a transcript with testdata/name.txt.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, "testdata/"+name+".txt", got)
}
