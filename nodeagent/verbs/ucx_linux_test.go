// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ucx makes UCX find the device (docs/libibverbs.md), and nothing besides.
func ucx(cmd *exec.Cmd, lib, transports string) *exec.Cmd {
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+filepath.Join(lib, "libmcastsysfs.so"), "UCX_NET_DEVICES=mcast0:1", "UCX_TLS="+transports)
	return cmd
}

// TestUCX: UCX finds the device, and its own test runs over RC and UD.
func TestUCX(t *testing.T) {
	lib := library(t)
	tools(t, "ucx_info", "ucx_perftest")
	h, sent := hosts(t)
	out, err := ucx(h[0].at(t, lib, "ucx_info", "-d"), lib, "all").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"Memory domain: mcast0", "Transport: rc_verbs", "Transport: ud_verbs", "Device: mcast0:1"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("ucx_info does not say %q:\n%s", want, out)
		}
	}
	if testing.Short() {
		return
	}
	for _, c := range [][2]string{{"rc,self", "tag_bw"}, {"rc,self", "ucp_put_lat"}, {"ud,self", "tag_lat"}} {
		port := freePort(t)
		server := ucx(h[0].at(t, lib, "ucx_perftest", "-p", port), lib, c[0])
		var said bytes.Buffer
		server.Stdout, server.Stderr = &said, &said
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		out, err := retry(t, func() ([]byte, error) {
			return ucx(h[1].at(t, lib, "ucx_perftest", "127.0.0.1", "-p", port, "-t", c[1], "-s", "16384", "-n", "100", "-w", "10"), lib, c[0]).CombinedOutput()
		})
		if err != nil || !bytes.Contains(out, []byte("Final:")) {
			_ = server.Process.Kill()
			t.Errorf("%v: %v\n%s\nserver:\n%s", c, err, out, said.String())
		}
		_ = server.Wait() // only the client's output is checked
	}
	for _, h := range h {
		h.emptied(t)
	}
	if seen := opcodes(t, sent); !seen["100"] || !seen["17"] {
		t.Errorf("on the link are %v", seen)
	}
}

// TestOpenMPI: Debian's Open MPI over UCX, a rank at each NIC; every byte is compared, and all went over the link.
func TestOpenMPI(t *testing.T) {
	lib := library(t)
	tools(t, "mpicc", "mpirun")
	if testing.Short() || os.Getenv("MCASTLAB_REQUIRE_TOOLS") == "" {
		t.Skip("takes half a minute: set MCASTLAB_REQUIRE_TOOLS")
	}
	program := filepath.Join(t.TempDir(), "mpi")
	if out, err := exec.Command("mpicc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/mpi.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h, sent := hosts(t)
	args := []string{"--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ucx", "--mca", "btl", "^openib", "--mca", "osc", "^ucx"}
	for i, h := range h {
		if i > 0 {
			args = append(args, ":")
		}
		args = append(args, "-np", "2", "env", "MCASTLAB_VERBS="+h.path, "LD_LIBRARY_PATH="+lib, "LD_PRELOAD="+filepath.Join(lib, "libmcastsysfs.so"),
			"UCX_NET_DEVICES=mcast0:1", "UCX_TLS=rc,self", program)
	}
	cmd := h[0].at(t, lib, "mpirun", args...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "4 ranks, 0 wrong") {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, h := range h {
		h.emptied(t)
		if n := h.nic.Stats().BytesReceived; n < 10<<18 { // of 256 KiB a rank gets four exchanges, four sums and two broadcasts
			t.Errorf("NIC %d has received %d bytes", i, n)
		}
	}
	if seen := opcodes(t, sent); !seen["17"] {
		t.Errorf("on the link are %v", seen)
	}
}

// TestSysfs: programs list the device's folders, follow their paths and read their files, and see those of others as they are.
func TestSysfs(t *testing.T) {
	lib := library(t)
	h, _ := hosts(t)
	for _, c := range []struct{ script, want string }{
		{"ls /sys/class/infiniband /dev/infiniband", "/dev/infiniband:\nuverbs0\n\n/sys/class/infiniband:\nmcast0\n"},
		{"ls /sys/class/infiniband/mcast0/", "device\nfw_ver\nhw_rev\nnode_guid\nnode_type\nports\nsys_image_guid\n"},
		{"ls //sys/class/infiniband/mcast0", ""},
		{"ls /sys/class/infiniband/mcast0/ports/1", "cap_mask\ngid_attrs\ngids\nlid\nlid_mask_count\nlink_layer\nphys_state\npkeys\nrate\nsm_lid\nsm_sl\nstate\n"},
		{"cat /sys/class/infiniband/mcast0//ports/1/state", "4: ACTIVE\n"},
		{"ls /sys/class/infiniband/mcast0/ports/2", ""},
		{"ls /sys/class/infiniband/mcast0/device/net", ""}, // the host of this test has neither interface
		{"test -d /sys/class/infiniband/mcast0/device && ! test -d /sys/class/infiniband/mcast0/node_type && ! test -e /sys/class/infiniband/mcast1 && echo yes", "yes\n"},
		{"cat /sys/class/infiniband/*/ports/1/rate", "100 Gb/sec (4X EDR)\n"}, // the shell's pattern finds it, too
		{"test $(cat /sys/class/infiniband/mcast0/node_guid) = $(ibv_devinfo | awk '/node_guid/ {print $2}') && echo yes", "yes\n"},
		{"cat /sys/class/infiniband/mcast0/fw_ver; ibv_devinfo | awk '/fw_ver/ {print $2}'", "mcastlab\nmcastlab\n"},
		{"! readlink /sys/class/infiniband/mcast0/ports && readlink /proc/self/fd/0", "/dev/null\n"},
		{"export MCASTLAB_VERBS=/nowhere; cat /sys/class/infiniband/mcast0/node_type; cat /sys/class/infiniband/mcast0/node_guid || echo none", "1: CA\nnone\n"},
		{"for f in /sys/class/infiniband/mcast0/ports/1/*; do test -f $f && cat $f; done", "0x00010000\n0x0\n0\nEthernet\n5: LinkUp\n100 Gb/sec (4X EDR)\n0x0\n0\n4: ACTIVE\n"},
		{"test -c /dev/infiniband/uverbs0 && echo yes", "yes\n"},
		{"ls -d /sys/class/net/lo", "/sys/class/net/lo\n"},
		{"env -u MCASTLAB_VERBS ls /dev/infiniband/uverbs0", ""},
	} {
		cmd := ucx(h[0].at(t, lib, "sh", "-c", c.script), lib, "all")
		if out, _ := cmd.Output(); string(out) != c.want {
			t.Errorf("%s: %q, not %q", c.script, out, c.want)
		}
	}
	for six, want := range map[bool]string{false: "0000:0000:0000:0000:0000:ffff:0a00:0001\n", true: "fd6d:6361:7374:0000:0000:0000:0a00:0001\n"} { // independent of each other
		h, _ := hostsIn(t, six)
		cmd := ucx(h[0].at(t, lib, "cat", "/sys/class/infiniband/mcast0/ports/1/gids/0"), lib, "all")
		if out, _ := cmd.Output(); string(out) != want {
			t.Errorf("its GID is %q, not %q", out, want)
		}
		h[0].emptied(t)
	}
}
