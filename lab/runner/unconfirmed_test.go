// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// TestUnconfirmed: a row of which an external host lacks a part is no failure of bytes, and not verified in any output.
func TestUnconfirmed(t *testing.T) {
	no := false
	r := Report{Results: []apps.Row{{
		Workload: "bcast", Scheme: "cepheus", SizeBytes: 1024, Iterations: 1, Payload: "bytes", External: []string{"h2"}, Verified: &no,
		Unconfirmed: []collective.Lack{{Host: "h2", Why: "has acknowledged PSN 10; the last packet has PSN 11"}},
	}}}
	const want = "bcast cepheus at 1KiB: external host h2 has acknowledged PSN 10; the last packet has PSN 11"
	if f := r.Failures(); len(f) != 1 || f[0] != want {
		t.Errorf("it fails with %q", f)
	}
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NOT KNOWN", "In 1 of 1 rows an external host lacks data"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := r.WriteCSV(&b); err != nil || !strings.Contains(b.String(), ",false,") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
