// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// swarmEngines are Docker engines of the test's own, each as on a server of its own: in a network namespace with an address in
// 10.201.0.0/24, with its own host name, /run and /sys, and with its own CLOCK_MONOTONIC where the kernel lets it. A bridge in yet another namespace joins them, so that no rule of this
// server's firewall applies between them.
type swarmEngines struct {
	t   *testing.T
	dir string
	n   int
}

// engineOut is the interface here that leads to them.
const engineOut = "sw-t-out"

func needSwarmEngines(t *testing.T) {
	t.Helper()
	need(t)
	for _, tool := range []string{"dockerd", "docker", "ip", "iptables", "nsenter", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	_ = exec.Command("ip", "link", "del", engineOut).Run() // a test that was killed may have left it, which is no change that this test makes
}

// newSwarmEngines starts n engines, which are in no Swarm yet, named sw1 and so on.
func newSwarmEngines(t *testing.T, n int) *swarmEngines {
	t.Helper()
	e := &swarmEngines{t, t.TempDir(), n}
	if err := syscall.Mount("tmpfs", e.dir, "tmpfs", 0, "size=1500m"); err != nil {
		t.Fatalf("mount a file system for engines: %v", err)
	}
	t.Cleanup(e.end)
	script := fmt.Sprintf(`set -e
cd %s
: > net0
unshare --net=net0 sh -ec 'ip link add br0 type bridge; ip link set br0 up'
ip link add %[2]s type veth peer name out netns ./net0
nsenter --net=net0 ip link set out master br0 up
ip addr add 10.201.0.254/24 dev %[2]s
ip link set %[2]s up
`, e.dir, engineOut)
	for i := 1; i <= n; i++ {
		script += fmt.Sprintf(`
: > net%[1]d
unshare --net=net%[1]d true
nsenter --net=net%[1]d ip link add eth0 type veth peer name p%[1]d netns ./net0
nsenter --net=net0 ip link set p%[1]d master br0 up
nsenter --net=net%[1]d sh -ec 'ip addr add 10.201.0.%[1]d/24 dev eth0; ip link set eth0 up; ip link set lo up; ip route add default via 10.201.0.254'
`, i)
	}
	e.sh(script)
	for i := 1; i <= n; i++ {
		e.sh(e.startScript(i))
	}
	for i := 1; i <= n; i++ {
		e.sh(fmt.Sprintf(`for i in $(seq 1200); do docker -H %s version > /dev/null 2>&1 && exit; sleep 0.1; done; cat %s/log; exit 1`, e.host(i), e.path(i)))
	}
	return e
}

// startScript starts engine i. The socket at /run/docker.sock is where containers on that server find it, the other where the test does.
func (e *swarmEngines) startScript(i int) string {
	return fmt.Sprintf(`set -e
mkdir -p %[1]s/data %[1]s/exec %[1]s/cgroup
echo '{}' > %[1]s/daemon.json
cat > %[1]s/start <<'END'
hostname sw%[2]d
mount -t tmpfs run /run
mount --rbind /sys/fs/cgroup %[1]s/cgroup
mount -t sysfs sysfs /sys
mount --rbind %[1]s/cgroup /sys/fs/cgroup
exec dockerd --config-file %[1]s/daemon.json --data-root %[1]s/data --exec-root %[1]s/exec --pidfile %[1]s/pid -H unix:///run/docker.sock -H unix://%[1]s/socket
END
clock=$(unshare --time --monotonic %[2]d000 echo --time --monotonic %[2]d000 2> /dev/null || true)
setsid nsenter --net=%[3]s/net%[2]d unshare --mount --uts --propagation private $clock sh -e %[1]s/start > %[1]s/log 2>&1 < /dev/null &
`, e.path(i), i, e.dir)
}

func (e *swarmEngines) path(i int) string { return filepath.Join(e.dir, fmt.Sprint("e", i)) }

// host is DOCKER_HOST of an engine.
func (e *swarmEngines) host(i int) string { return "unix://" + e.path(i) + "/socket" }

// env returns the environment of a command on server i.
func (e *swarmEngines) env(i int) []string {
	return []string{"DOCKER_HOST=" + e.host(i), "MCASTLAB_HOSTS_STATE=" + filepath.Join(e.path(i), "hosts")}
}

func (e *swarmEngines) sh(script string) string {
	e.t.Helper()
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		e.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// inside runs a script in the network namespace of a server.
func (e *swarmEngines) inside(i int, script string) string {
	e.t.Helper()
	return e.sh(fmt.Sprintf("nsenter --net=%s/net%d sh -ec '%s'", e.dir, i, script))
}

// docker runs the Docker client of a server.
func (e *swarmEngines) docker(i int, args string) string {
	e.t.Helper()
	return e.sh("docker -H " + e.host(i) + " " + args)
}

// join makes one Swarm of all; engine 1 is its manager.
func (e *swarmEngines) join() {
	e.t.Helper()
	e.docker(1, "swarm init --advertise-addr 10.201.0.1")
	token := e.docker(1, "swarm join-token -q worker")
	for i := 2; i <= e.n; i++ {
		e.docker(i, "swarm join --token "+token+" 10.201.0.1:2377")
	}
}

// root is the file system of a server as seen from here.
func (e *swarmEngines) root(i int) string {
	return fmt.Sprintf("/proc/%d/root", e.pid(i, "pid"))
}

func (e *swarmEngines) pid(i int, file string) int {
	b, err := os.ReadFile(filepath.Join(e.path(i), file))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

// end stops the engines, and removes what was made for them.
func (e *swarmEngines) end() {
	for i := 1; i <= e.n; i++ {
		for _, file := range []string{"pid", "exec/containerd/containerd.pid"} {
			if pid := e.pid(i, file); pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
				waitFor(e.t, func() bool {
					stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					return err != nil || strings.Contains(string(stat), ") Z ")
				})
			}
		}
		if b, err := os.ReadFile(filepath.Join(e.path(i), "log")); err == nil && e.t.Failed() {
			e.t.Logf("the log of engine %d ends:\n%s", i, b[max(0, len(b)-2000):])
		}
	}
	e.sh("ip link del " + engineOut)
	if err := syscall.Unmount(e.dir, syscall.MNT_DETACH); err != nil {
		e.t.Errorf("unmount: %v", err)
	}
}
