package lab

import (
	"fmt"
	"strings"
	"testing"
)

// TestEscapes: no lab file reaches the host. There is no key for privilege, mounts,
// devices, interfaces, host networks, images or commands, and no name can be a path, an
// option or a piece of shell.
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
