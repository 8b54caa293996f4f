// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLiveUnread: in virtual time, too, programs raise more events than a socket holds before they read the first, of their own and from
// another host; what has completed is in memory; and each run is the same run.
func TestLiveUnread(t *testing.T) {
	need(t, "netns")
	verbsTools(t, "ib_write_bw")
	dir := t.TempDir()
	for _, name := range []string{"unread", "visible"} {
		if out, err := exec.Command("cc", "-O1", "-o", filepath.Join(dir, name), "../nodeagent/verbs/testdata/"+name+".c", "-lrdmacm", "-libverbs").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	program := filepath.Join(dir, "unread")
	text := fmt.Sprintf(hops, "t-unread")
	for _, args := range []string{"resolve, '1000', h3", "queues, '600'"} {
		text += fmt.Sprintf("  - command: {label: %.5s, run: [%s, %s], ranks: [h0], timeout: 300s}\n", args, program, args)
	}
	text += fmt.Sprintf("  - command: {label: visible, run: [%s, '500'], ranks: [h0], timeout: 300s}\n", filepath.Join(dir, "visible"))
	text += fmt.Sprintf("  - command: {label: flood, run: [sh, -c, 'if [ $MCASTLAB_RANK = 1 ]; then exec %s serve 500; fi; sleep 1; exec %[1]s ask 500 h3'], ranks: [h0, h3], timeout: 300s}\n", program)
	file := write(t, text)
	first, second := runTurns(t, file), runTurns(t, file)
	if first.Digest != second.Digest {
		t.Errorf("digests %q and %q", first.Digest, second.Digest)
	}
	for i, row := range first.Results {
		if row.Verified == nil || !*row.Verified || row.JCT.Max != second.Results[i].JCT.Max {
			t.Errorf("%s: verified %v, %v us and %v us", row.Workload, row.Verified, row.JCT.Max, second.Results[i].JCT.Max)
		}
	}
	if trapsCounter(t) { // it computes for so long that its time is not the same in each run
		runTurns(t, write(t, fmt.Sprintf(hops, "t-unread")+fmt.Sprintf(pairOf, "pairs", "ib_write_bw -R -F -q 256 -s 512 -n 20 -t 2", "h1")))
	}
	noLab(t, "t-unread", nil)
}
