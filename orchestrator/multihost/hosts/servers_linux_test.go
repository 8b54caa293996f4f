// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/api/types/system"
)

// TestSwarmErrors: what keeps a Swarm from being used, each with the remedy.
func TestSwarmErrors(t *testing.T) {
	manager := swarm.Info{LocalNodeState: swarm.LocalNodeStateActive, ControlAvailable: true}
	worker := swarm.Info{LocalNodeState: swarm.LocalNodeStateActive, RemoteManagers: []swarm.Peer{{Addr: "10.0.0.1:2377"}, {Addr: "10.0.0.2:2377"}}}
	for _, x := range []struct {
		name  string
		info  swarm.Info
		api   string
		wants []string
	}{
		{"fine", manager, "1.41", nil},
		{"newer", manager, "1.50", nil},
		{"too old", manager, "1.40", []string{"19.03.15", "20.10", "update it"}},
		{"much too old", manager, "1.9", []string{"update it"}},
		{"no Swarm", swarm.Info{LocalNodeState: swarm.LocalNodeStateInactive}, "1.41", []string{"in no Swarm", "docker swarm init", "docker swarm join"}},
		{"locked", swarm.Info{LocalNodeState: swarm.LocalNodeStateLocked}, "1.41", []string{"docker swarm unlock"}},
		{"failed", swarm.Info{LocalNodeState: swarm.LocalNodeStateError, Error: "no route"}, "1.41", []string{"error: no route"}},
		{"a worker", worker, "1.41", []string{"a worker", "on a manager, at 10.0.0.1 or 10.0.0.2"}},
	} {
		err := swarmError(&system.Info{Swarm: x.info, ServerVersion: "19.03.15"}, x.api)
		if (err == nil) != (x.wants == nil) {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		for _, w := range x.wants {
			if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %q does not say %q", x.name, err, w)
			}
		}
	}
}

func node(id, host, address string) swarm.Node {
	return swarm.Node{
		ID: id, Spec: swarm.NodeSpec{Role: swarm.NodeRoleWorker, Availability: swarm.NodeAvailabilityActive},
		Description: swarm.NodeDescription{
			Hostname: host, Platform: swarm.Platform{Architecture: archName(runtime.GOARCH)}, Engine: swarm.EngineDescription{EngineVersion: "20.10.24+dfsg1"},
			Resources: swarm.Resources{NanoCPUs: 2e9, MemoryBytes: 7},
		},
		Status: swarm.NodeStatus{State: swarm.NodeStateReady, Addr: address},
	}
}

// TestServers: the nodes of a Swarm as servers, among them those that cannot take part.
func TestServers(t *testing.T) {
	lead := node("ccc1112223", "vm", "0.0.0.0")
	lead.Spec.Role, lead.ManagerStatus = swarm.NodeRoleManager, &swarm.ManagerStatus{Addr: "10.0.0.1:2377"}
	down, drained, old, other, six := node("d", "down", "10.0.0.3"), node("e", "drained", "10.0.0.4"), node("f", "old", "10.0.0.5"), node("g", "other", "10.0.0.6"), node("h", "six", "fd00::6")
	down.Status.State, down.Status.Message = swarm.NodeStateDown, "heartbeat failure"
	drained.Spec.Availability = swarm.NodeAvailabilityDrain
	old.Description.Engine.EngineVersion = "19.03.15"
	other.Description.Platform.Architecture = "riscv64"
	six.Description.Engine.EngineVersion = "29.1"
	got := serversOf([]swarm.Node{lead, node("aaa1112223", "vm", "10.0.0.2"), down, drained, old, other, six})
	var texts []string
	for _, m := range got {
		if m.Cores != 2 || m.Memory != 7 {
			t.Errorf("%+v", m)
		}
		texts = append(texts, strings.Join([]string{m.Name, m.Address, m.Role, m.State, m.Error}, "|"))
	}
	want := []string{
		"down|10.0.0.3|worker|down|the Swarm does not reach it (heartbeat failure): start its engine, or take it out with docker node rm d",
		"drained|10.0.0.4|worker|drained|",
		"old|10.0.0.5|worker|stopped|its Docker engine is 19.03.15, and jobs of a Swarm came with 20.10: update it",
		"other|10.0.0.6|worker|stopped|it is riscv64, and this program is for " + archName(runtime.GOARCH) + ": drain it (docker node update --availability drain g)",
		"six|fd00::6|worker||",
		"vm-aaa111|10.0.0.2|worker||",
		"vm-ccc111|10.0.0.1|manager||",
	}
	if !slices.Equal(texts, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

// TestSpecs: what the daemon and the two jobs may do, in full. Whatever a later change adds has to be thought about here.
func TestSpecs(t *testing.T) {
	d, j, l := daemonSpec("sha256:1", 7940), joinSpec("sha256:1", 7940, "s", []string{"a", "b"}), leaveSpec("sha256:1", 7940)
	for _, s := range []swarm.ServiceSpec{d, j, l} {
		c := s.TaskTemplate.ContainerSpec
		if !c.ReadOnly || !slices.Equal(c.CapabilityDrop, []string{"ALL"}) || len(c.CapabilityAdd) != 0 || c.Privileges != nil || len(c.Sysctls) != 0 || c.TTY || c.User != "0:0" {
			t.Errorf("%s: %+v", s.Name, c)
		}
		if want := []mount.Mount{{Type: mount.TypeBind, Source: "/run", Target: "/run"}}; !reflect.DeepEqual(c.Mounts, want) {
			t.Errorf("%s: mounts %+v", s.Name, c.Mounts)
		}
		if n := s.TaskTemplate.Networks; len(n) != 1 || n[0].Target != "host" || s.EndpointSpec != nil {
			t.Errorf("%s: networks %+v, ports %+v", s.Name, n, s.EndpointSpec)
		}
		if r := s.TaskTemplate.Resources; r.Limits.MemoryBytes <= 0 || r.Limits.Pids <= 0 {
			t.Errorf("%s: limits %+v", s.Name, r.Limits)
		}
		if s.Labels[labelPart] != s.Name || s.Labels[labelPort] != "7940" || s.Labels[labelSpec] == "" || c.Labels[labelSpec] != s.Labels[labelSpec] {
			t.Errorf("%s: labels %v", s.Name, s.Labels)
		}
		if text := strings.Join(append(c.Env, c.Args...), " "); strings.Contains(strings.ToLower(text), "key") || len(c.Configs) != 0 {
			t.Errorf("%s: %s", s.Name, text)
		}
	}
	if len(d.TaskTemplate.ContainerSpec.Secrets) != 0 || len(l.TaskTemplate.ContainerSpec.Secrets) != 0 {
		t.Error("a service has the secret that only the join needs")
	}
	for _, s := range []swarm.ServiceSpec{d, j, l} {
		want := swarm.RestartPolicyConditionNone
		if s.Name == serviceName {
			want = swarm.RestartPolicyConditionAny
		}
		if s.Mode.Global == nil || s.TaskTemplate.RestartPolicy.Condition != want {
			t.Errorf("%s: %+v, restarted on condition %s", s.Name, s.Mode, s.TaskTemplate.RestartPolicy.Condition)
		}
	}
	secrets := j.TaskTemplate.ContainerSpec.Secrets
	if len(secrets) != 1 || secrets[0].SecretID != "s" || secrets[0].File.Name != TokenFile || secrets[0].File.Mode != 0o400 {
		t.Errorf("%+v", secrets)
	}
	if again := daemonSpec("sha256:1", 7940); !reflect.DeepEqual(d, again) {
		t.Error("the same specification twice is not the same")
	}
	for _, other := range []swarm.ServiceSpec{daemonSpec("sha256:2", 7940), daemonSpec("sha256:1", 7941)} {
		if other.Labels[labelSpec] == d.Labels[labelSpec] {
			t.Error("two specifications have one hash")
		}
	}
}

// TestOlder: versions by their first two numbers.
func TestOlder(t *testing.T) {
	for _, x := range []struct {
		a, b string
		want bool
	}{{"1.40", "1.41", true}, {"1.41", "1.41", false}, {"1.9", "1.41", true}, {"2.0", "1.41", false}, {"20.10.24+dfsg1", "20.10", false}, {"19.03", "20.10", true}, {"", "1.0", true}, {"v7", "1.0", true}} {
		if got := older(x.a, x.b); got != x.want {
			t.Errorf("%q before %q: %v", x.a, x.b, got)
		}
	}
}
