// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
	"testing"
)

// TestEscapes: no lab file reaches the host. There is no key for privilege, mounts,
// devices, interfaces, host networks or images, and no name can be a path, an
// option or a piece of shell. Workloads that run programs of this server have no key for a user, an environment, a
// folder, a shell or a namespace, and are refused unless they are allowed (TestPrograms).
func TestEscapes(t *testing.T) {
	const plain = "name: %q\ntopology: {custom: {hosts: [h0, %q], switches: [s0], links: [h0-s0, %q]}}\nworkloads:\n  - bcast: {label: %q, schemes: [{cepheus: {label: %q}}], sizes: [1KiB]}\n"
	try := func(lab, node, label string) error {
		_, err := Parse("x", fmt.Appendf(nil, plain, lab, node, node+"-s0", label, label))
		return err
	}
	if err := try("x", "h1", "b"); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", ".", "..", "../x", "../../etc/cron.d/x", "/etc", "a/b", "a\\b", "a b", " a", "a\n", "a\x00b", "-a", "--privileged", "a;reboot", "$(reboot)", "`id`",
		"a|b", "a&b", "a>b", "a*", "a?", "{a}", "%s", "a:b", "a=b", "a,b", "a'b", "a\"b", "ä", "a\u202eb", "1a", "_a", strings.Repeat("a", 64),
	} {
		if try(bad, "h1", "b") == nil {
			t.Errorf("a lab may be called %q", bad)
		}
		if try("x", bad, "b") == nil {
			t.Errorf("a node may be called %q", bad)
		}
		if bad != "" && try("x", "h1", bad) == nil { // an empty label is the default
			t.Errorf("a label may be %q", bad)
		}
	}
	for _, upper := range []string{"A", "Lab"} { // a container's name
		if try(upper, "h1", "b") == nil {
			t.Errorf("a lab may be called %q", upper)
		}
	}
	base := "name: x\ntopology: {star: {hosts: 2}}\n"
	for _, key := range []string{
		"privileged: true", "cap-add: [ALL]", "devices: [/dev/mem]", "volumes: ['/:/host']", "binds: ['/:/host']", "mounts: [/]", "network: host", "network-mode: host",
		"pid: host", "ipc: host", "user: root", "image: evil", "command: [sh]", "entrypoint: sh", "env: {A: b}", "security-opt: [seccomp=unconfined]", "sysctls: {a: b}",
		"interface: eth0", "interfaces: [eth0]", "attach: {h0: eth0}", "exec: reboot", "init: reboot", "include: /etc/passwd", "runtime: {exec: reboot}",
		"runtime: {privileged: true}", "switches: {interface: eth0}", "nics: {interface: eth0}", "links: {interface: eth0}",
		"hosts: [{name: h0, kind: external, external: {interface: eth0}}]", "hosts: [{name: h0, kind: external, interface: eth0}]", "hosts: [{name: h0, kind: bridge}]",
		"hosts: [{name: ../h0}]", "topology: {custom: {hosts: [h0], switches: [s0], links: [{ends: h0-s0, interface: eth0}]}}",
		"workloads: [{command: reboot}]", "workloads: [{command: [reboot]}]", "workloads: [{command: {run: reboot; reboot}}]", "workloads: [{command: {}}]", "workloads: [{command: {run: []}}]",
		"workloads: [{command: {run: ['']}}]", "workloads: [{command: {run: [\"a\\0b\"]}}]", "workloads: [{command: {run: [id], user: root}}]", "workloads: [{command: {run: [id], root: true}}]",
		"workloads: [{command: {run: [id], privileged: true}}]", "workloads: [{command: {run: [id], env: {LD_PRELOAD: /x}}}]", "workloads: [{command: {run: [id], dir: /}}]", "workloads: [{command: {run: [id], cwd: /}}]",
		"workloads: [{command: {run: [id], shell: true}}]", "workloads: [{command: {run: [id], stdout: /etc/passwd}}]", "workloads: [{command: {run: [id], label: ../x}}]", "workloads: [{command: {run: [id], launcher: /bin/sh}}]",
		"workloads: [{command: {run: [id], ranks: ['../h0']}}]", "workloads: [{command: {run: [id], ranks: [switch0]}}]", "workloads: [{command: {run: [id], per-host: 0}}]", "workloads: [{command: {run: [id], per-host: 65}}]",
		"workloads: [{command: {run: [id], timeout: 0}}]", "workloads: [{command: {run: [id], timeout: 90000s}}]", "workloads: [{command: {run: [id], network: host}}]", "allow-programs: true", "runtime: {allow-programs: true}",
		"workloads: [{command: {run: [id], allow-programs: true}}]",
		"workloads: [{exec: {command: reboot}}]", "workloads: [{bcast: {schemes: [cepheus], sizes: [1KiB], command: reboot}}]",
		"workloads: [{bcast: {schemes: [cepheus], sizes: [1KiB], ranks: ['../../*']}}]", "workloads: [{bcast: {schemes: [../x], sizes: [1KiB]}}]",
		"faults: [{loss: {links: '$(reboot)', rate: 0.1}}]", "faults: [{pause: {node: ../h0}}]", "faults: [{exec: reboot}]", "expect: ['$(reboot) < 1']",
		"seed: !!python/object/apply:os.system [reboot]", "seed: &a 1\nname: *a", "<<: {seed: 1}",
	} {
		text := base + key + "\n"
		if strings.HasPrefix(key, "topology") {
			text = "name: x\n" + key + "\n"
		}
		if _, err := Parse("x", []byte(text)); err == nil {
			t.Errorf("accepted: %s", key)
		}
	}
}

// TestPrograms: programs that a lab file runs on this server have to be allowed, in a running lab, on a clock whose
// dilation is set; and their name in a run's folder is no path.
func TestPrograms(t *testing.T) {
	const base = "name: x\ntopology: {star: {hosts: 2}}\n"
	l, err := Parse("x", []byte(base+"runtime: {clock: dilated, dilation: 3}\nworkloads: [{command: {run: [/usr/../bin/id.sh, -u], ranks: [h1]}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if label := l.Workloads[0].Label(); label != "command" || !l.RunsPrograms() {
		t.Errorf("it is called %q, and programs run: %v", label, l.RunsPrograms())
	}
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused(l.CheckPrograms(false, 3), "runs /usr/../bin/id.sh on this server, as the user that calls mcastlab: read the file and, if you trust it, add --allow-programs")
	refused(l.CheckPrograms(true, 0), "set dilation under runtime")
	refused(l.CheckSim(), "use --runtime netns or docker")
	if err := l.CheckPrograms(true, 3); err != nil {
		t.Error(err)
	}
	if err := l.CheckLive(); err != nil {
		t.Error(err)
	}
	l.Runtime.Clock = ClockLockstep
	if err := l.CheckLive(); err != nil {
		t.Error(err)
	}
	mpi, err := Parse("x", []byte(base+"runtime: {clock: lockstep}\nworkloads: [{command: {run: [/bin/true], ranks: [h0, h1], launcher: mpirun}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	refused(mpi.CheckLive(), "set clock: dilated under runtime")
	if l, err = Parse("x", []byte(base+"workloads: [{bcast: {schemes: [cepheus], sizes: [1KiB]}}]\n")); err != nil || l.RunsPrograms() || l.CheckPrograms(false, 0) != nil {
		t.Errorf("a lab without programs: %v", err)
	}
}
