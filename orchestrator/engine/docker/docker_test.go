// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// TestCreateRequest: all rights of a node's container. A later change that adds one has to justify
// it here.
func TestCreateRequest(t *testing.T) {
	c, h := createRequest("lab", "image", "", engine.Node{Name: "h0", Dir: "/run/mcastlab/lab/n/h0"})
	if c.User != "64420:64420" || len(c.Env) != 0 || len(c.Volumes) != 0 || len(c.Entrypoint) != 0 || len(c.ExposedPorts) != 0 || !c.NetworkDisabled || c.Tty {
		t.Errorf("config %+v", c)
	}
	switch {
	case h.Privileged, len(h.CapAdd) != 0, len(h.CapDrop) != 1, h.CapDrop[0] != "ALL", len(h.Devices) != 0, len(h.DeviceRequests) != 0, len(h.DeviceCgroupRules) != 0:
		t.Errorf("privileges: %+v", h)
	case len(h.Binds) != 0, len(h.Mounts) != 1, h.Mounts[0].Source != "/run/mcastlab/lab/n/h0", h.Mounts[0].Target != mountPoint, len(h.VolumesFrom) != 0, len(h.Tmpfs) != 0:
		t.Errorf("mounts: %+v", h)
	case h.NetworkMode != "none", h.PidMode != "", h.IpcMode != "", h.UTSMode != "", h.UsernsMode != "", h.CgroupnsMode != "", len(h.PortBindings) != 0, h.PublishAllPorts:
		t.Errorf("namespaces: %+v", h)
	case !h.ReadonlyRootfs, len(h.SecurityOpt) != 1, h.SecurityOpt[0] != "no-new-privileges", len(h.Sysctls) != 0, h.OomKillDisable != nil:
		t.Errorf("security: %+v", h)
	case h.Memory <= 0, h.MemorySwap != h.Memory, h.PidsLimit == nil, *h.PidsLimit <= 0:
		t.Errorf("limits: %+v", h)
	case h.RestartPolicy != (container.RestartPolicy{}), h.AutoRemove, h.Runtime != "":
		t.Errorf("life: %+v", h)
	}
}

// TestProgram: a container that runs the host's copy of the program sees it at the place of the
// image's, and cannot write it. A copy that is not this program, or that nodes may not run, is not used.
func TestProgram(t *testing.T) {
	n := engine.Node{Name: "h0", Dir: "/run/mcastlab/lab/n/h0"}
	bare, plain := createRequest("lab", "image", "", n)
	c, h := createRequest("lab", "image", "/usr/bin/mcastlab", n)
	if len(h.Mounts) != 2 || !reflect.DeepEqual(h.Mounts[1], mount.Mount{Type: mount.TypeBind, Source: "/usr/bin/mcastlab", Target: "/mcastlab", ReadOnly: true}) {
		t.Fatalf("mounts: %+v", h.Mounts)
	}
	h.Mounts = plain.Mounts
	if !reflect.DeepEqual(c, bare) || !reflect.DeepEqual(h, plain) {
		t.Errorf("it changes more than mounts:\n%+v\n%+v", h, plain)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(self, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := program(); got != self {
		t.Errorf("program %q, want %q", got, self)
	}
	if err := os.Chmod(self, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := program(); got != "" {
		t.Errorf("a program for its owner alone is used: %q", got)
	}
	if err := os.Rename(self, self+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(self, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := program(); got != "" {
		t.Errorf("a file that has taken the program's place is used: %q", got)
	}
}

// TestVolume: a node that keeps something has one volume beside its folder, with our labels
// and at a fixed place, and nothing else changes.
func TestVolume(t *testing.T) {
	c, h := createRequest("lab", "image", "", engine.Node{Name: "h0", Dir: "/run/mcastlab/lab/n/h0", Data: "/run/mcastlab/lab/d/h0"})
	bare, plain := createRequest("lab", "image", "", engine.Node{Name: "h0", Dir: "/run/mcastlab/lab/n/h0"})
	if len(h.Mounts) != 2 {
		t.Fatalf("mounts: %+v", h.Mounts)
	}
	m := h.Mounts[1]
	if m.Type != mount.TypeVolume || m.Source != "mcastlab-lab-h0-data" || m.Target != "/data" || m.ReadOnly || m.VolumeOptions == nil {
		t.Fatalf("volume: %+v", m)
	}
	if l := m.VolumeOptions.Labels; len(l) != 2 || l[labelLab] != "lab" || l[labelNode] != "h0" || m.VolumeOptions.DriverConfig != nil {
		t.Errorf("volume options: %+v", m.VolumeOptions)
	}
	if want := []string{"node", "--dir", "/node", "--data", "/data"}; !slices.Equal(c.Cmd, want) {
		t.Errorf("command %v, want %v", c.Cmd, want)
	}
	c.Cmd, h.Mounts = bare.Cmd, plain.Mounts
	if !reflect.DeepEqual(c, bare) || !reflect.DeepEqual(h, plain) {
		t.Errorf("a volume changes more than mounts and command:\n%+v\n%+v", h, plain)
	}
}

// TestController: a controller's container sees the folders of all nodes and cannot write there;
// beside that it is like one that keeps something.
func TestController(t *testing.T) {
	n := engine.Node{Name: "controller1", Dir: "/run/mcastlab/lab/n/controller1", Data: "/run/mcastlab/lab/d/controller1"}
	bare, plain := createRequest("lab", "image", "", n)
	n.Nodes, n.Replicas = "/run/mcastlab/lab/n", 3
	c, h := createRequest("lab", "image", "", n)
	if len(h.Mounts) != 3 {
		t.Fatalf("mounts: %+v", h.Mounts)
	}
	if m := h.Mounts[2]; !reflect.DeepEqual(m, mount.Mount{Type: mount.TypeBind, Source: "/run/mcastlab/lab/n", Target: "/nodes", ReadOnly: true}) {
		t.Errorf("mount: %+v", m)
	}
	if want := append(slices.Clone(bare.Cmd), "--controller", "controller1", "--replicas", "3", "--nodes", "/nodes"); !slices.Equal(c.Cmd, want) {
		t.Errorf("command %v, want %v", c.Cmd, want)
	}
	c.Cmd, h.Mounts = bare.Cmd, plain.Mounts
	if !reflect.DeepEqual(c, bare) || !reflect.DeepEqual(h, plain) {
		t.Errorf("being a controller changes more than mounts and command:\n%+v\n%+v", h, plain)
	}
}
