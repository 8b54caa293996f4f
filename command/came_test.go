// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestFuzzEnded: a search that a signal ends says how far it came, and where to go on.
func TestFuzzEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for want, args := range map[string][]string{
		"0 of 5 labs from seed 7 on were run, 0 broke a promise; continue with --from 7\n":  {"--labs", "5"},
		"0 of 9 seeds from seed 7 on were run, 0 broke a promise; continue with --from 7\n": {"--seeds", "9", write(t, star)},
	} { // independent of each other
		var out, errOut bytes.Buffer
		code := run(ctx, append([]string{"mcastlab", "fuzz", "--from", "7"}, args...), nil, &out, &errOut, hooks{})
		if code != exitInterrupted || !strings.Contains(errOut.String(), want) {
			t.Errorf("%q: exit %d\n%s%s", args, code, out.String(), errOut.String())
		}
	}
}
