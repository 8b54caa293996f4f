// SPDX-License-Identifier: Apache-2.0

package rankrun

import (
	"errors"
	"testing"

	"github.com/mcastlab/mcastlab/rank"
)

// TestInside: every type of package rank with further calls has all that its interface lists,
// which no compiler checks.
func TestInside(t *testing.T) {
	if Of(new(rank.Rank)) == nil || OfGroup(new(rank.Group)) == nil || OfConn(new(rank.Conn)) == nil || OfBuffer(new(rank.Buffer)) == nil {
		t.Error("a type of package rank lacks its further calls")
	}
}

// TestRun: the error of a program is the result.
func TestRun(t *testing.T) {
	mine := errors.New("mine")
	if err := Run(func() error { return mine }); !errors.Is(err, mine) {
		t.Errorf("%v in place of the program's error", err)
	}
}
