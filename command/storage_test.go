// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/storage"
)

const storageText = `name: t-store
topology: {star: {hosts: 4}}
nics: {timeout: 67us, retries: 2}
workloads:
  - storage: {schemes: [unicasts, multicast-registered], bs: [4KiB], iodepth: 4, number-ios: 50, durability: fsync, on-failure: degrade}
`

// storageRows runs a lab of storage on the event clock.
func storageRows(t *testing.T, text string, code int) ([]apps.Row, outcome) {
	t.Helper()
	o := call(t, hooks{}, "", "run", "--format", "json", "--runs", t.TempDir(), "-q", "--check", write(t, text))
	if o.code != code {
		t.Fatalf("exit %d, want %d\n%s", o.code, code, o.err)
	}
	var r struct{ Results []apps.Row }
	if len(o.out) > 0 {
		if err := json.Unmarshal([]byte(o.out), &r); err != nil {
			t.Fatal(err)
		}
	}
	return r.Results, o
}

// TestStorage: the rows of a run, a replica that fails by either policy, a disk that is
// full, and what is printed.
func TestStorage(t *testing.T) {
	rows, _ := storageRows(t, storageText, 0)
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		if ios(r) == nil || ios(r).IOs != 50 || ios(r).IOPS <= 0 || len(ios(r).Percentiles) != 17 || ios(r).Replicas != 3 || !*r.Verified || r.JCT.P50 <= r.Source.P50 {
			t.Errorf("row %+v %+v", r, ios(r))
		}
	}
	crash := strings.Replace(storageText, "on-failure", "crash: {host: h2, after: 100us}, on-failure", 1)
	rows, _ = storageRows(t, crash, 0)
	for _, r := range rows {
		if ios(r).IOs != 50 || ios(r).Replicas != 2 || len(ios(r).Lost) != 1 || ios(r).Lost[0] != "h2" || ios(r).Copied == 0 || !*r.Verified {
			t.Errorf("degraded: %+v", ios(r))
		}
	}
	_, o := storageRows(t, strings.Replace(crash, "degrade", "stop", 1), exitRuntime)
	if !strings.Contains(o.err, "storage unicasts, bs 4096: replica h2 failed after ") {
		t.Errorf("stopped: %s", o.err)
	}
	full := strings.Replace(storageText, "on-failure: degrade", "disk: 100KiB", 1)
	rows, o = storageRows(t, full, exitRuntime)
	if !strings.Contains(o.err, "it cannot commit: store: no space left on device") || len(rows) != 1 || ios(rows[0]).IOs == 0 || ios(rows[0]).IOs > 25 || ios(rows[0]).Error == "" {
		t.Errorf("full: %s, %+v", o.err, rows)
	}
	o = call(t, hooks{}, "", "run", "--runs", t.TempDir(), "-q", write(t, storageText))
	for _, want := range []string{
		"storage.unicasts: (g=0): rw=write, bs=(R) 4KiB-4KiB, (W) 4KiB-4KiB, (T) 4KiB-4KiB, ioengine=rdma, iodepth=4\n",
		"storage.unicasts: (groupid=0, jobs=1): err= 0\n  write: IOPS=", "    lat percentiles (usec):\n     |  1.00th=[",
		"  durability=fsync, replicas=3, read back: equal, every acknowledged write is there\n",
	} {
		if !strings.Contains(o.out, want) {
			t.Errorf("the output lacks %q:\n%s", want, o.out)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(storageText, "unicasts", "unicats", 1):   `no storage scheme "unicats", did you mean "unicasts"?`,
		strings.Replace(storageText, "4KiB", "0B", 1):            "a bs of 0B: a block has at least one byte",
		strings.Replace(storageText, "iodepth: 4", "qd: 4", 1):   `unknown key "qd"`,
		storageText + "expect: [storage.unicasts.4KiB.io > 1]\n": "neither a number nor WORKLOAD",
	} {
		if _, o := storageRows(t, text, exitLab); !strings.Contains(o.err, want) {
			t.Errorf("%s, want %s", o.err, want)
		}
	}
}

// ios returns what a row of storage says beside its times.
func ios(r apps.Row) *storage.IO { return apps.DetailsOf[storage.IO](r) }
