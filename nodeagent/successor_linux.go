// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// An agent-crash ends the process of a node, and a successor takes its place: the same program,
// executed again under the same process number, so that the container and the network namespace, whose
// interfaces are the ends of the neighbours' links, stay. The memory of the first process is lost.
// Through an unnamed file the successor inherits the state that belongs to the lab and not to the node:
// its configuration, its clock, the faults, the frames on its links, and the counters and reports. It
// runs long before the fault ends; its links are down until then.

// legacyEnv names the descriptor of the file.
const legacyEnv = "MCASTLAB_LEGACY"

// legacy is the state that one process of a node leaves to the next.
type legacy struct {
	Configure []byte // nodeapi.ConfigureRequest
	Epoch     uint64 // of the fence
	Sockets   []int
	Listeners map[string]int // by name

	Left      live.Left
	Counted   counters.Node
	Batch     []byte // nodeapi.EventBatch: events that have not been sent yet
	Faults    faults.State
	Multicast []wire.MulticastEntry
	Snooped   *virtswitch.Snooped
	Down      []int // links that a switch's routes do without
}

// EndAgent implements faults.LinkTarget. For the job, if there is one, it is like any crash.
func (t target) EndAgent(now vtime.Time, node int) (lost int) {
	if t.n.sw != nil {
		t.n.snooped = t.n.sw.Snooped()
	}
	t.n.leaving.Store(true)
	lost = t.Restart(now, node)
	t.n.loop.Halt()
	return lost
}

// errLeaving refuses a call that the next process must serve: the caller tries again (nodeapi.Again).
func errLeaving() error {
	return status.Error(codes.Aborted, "the agent has crashed, and is being started again")
}

// succeed replaces the process of a node whose loop an agent-crash has ended by its successor.
// Messages already sent to watchers and the job are delivered first.
func (a *agent) succeed(n *node) {
	a.mu.Lock() // no call is under way any more
	if a.node != n {
		a.mu.Unlock() // it was configured again meanwhile
		return
	}
	a.leaving = true
	a.mu.Unlock()
	n.finish()
	l, err := a.keepListeners()
	if err == nil {
		a.endCalls()
		var x *legacy
		if x, err = a.leave(n, l); err == nil {
			err = a.execute(x)
		}
	}
	a.failed <- fmt.Errorf("start node %s again: %w", n.name, err)
}

// leaveWait bounds the time in which connected clients may receive the messages sent to them.
const leaveWait = 5 * time.Second

// endCalls ends all connections. Clients may connect again: a call then waits for the next process.
func (a *agent) endCalls() {
	late := time.AfterFunc(leaveWait, a.calls.Stop)
	a.calls.GracefulStop()
	late.Stop()
}

// keepListeners returns descriptors of the sockets at which the agent listens, which stay when
// those are closed.
func (a *agent) keepListeners() (map[string]int, error) {
	all := map[string]int{}
	for name, l := range a.listeners { // independent of each other
		l.SetUnlinkOnClose(false)
		f, err := l.File()
		if err != nil {
			return nil, err
		}
		if all[name], err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return all, a.listeners[nodeapi.HandoverSocket].Close() // the next process accepts later handovers
}

// leave collects the legacy of a node whose loop has ended.
func (a *agent) leave(n *node, listeners map[string]int) (*legacy, error) {
	state, err := n.faults.State()
	if err != nil {
		return nil, err
	}
	x := &legacy{Configure: n.configure, Epoch: a.fence.Highest(), Sockets: a.sockets, Listeners: listeners, Faults: state}
	var links []live.LinkStats
	x.Left, links = n.loop.Leave()
	x.Counted = n.counted(links)
	x.Batch = n.events.legacy()
	if n.sw != nil {
		x.Multicast, x.Snooped, x.Down = n.sw.Multicasts(), n.snooped, n.routes.down
	}
	return x, nil
}

// execute replaces the process. It returns only if that fails.
func execute(x *legacy) error {
	fd, err := unix.MemfdCreate("mcastlab", unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("make a memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "legacy")
	if err := gob.NewEncoder(f).Encode(x); err != nil {
		return fmt.Errorf("write the agent's state: %w", err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		return fmt.Errorf("write the agent's state: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return fmt.Errorf("seal the agent's state: %w", err)
	}
	keep := append([]int{}, x.Sockets...)
	for _, fd := range x.Listeners { // independent of each other
		keep = append(keep, fd)
	}
	for _, fd := range keep {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep a descriptor: %w", err)
		}
	}
	if err := unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), legacyEnv+"="+strconv.Itoa(fd))); err != nil {
		return fmt.Errorf("execute the program again: %w", err)
	}
	return nil // not reached: exec does not return
}

// inherit returns the state that an earlier process of this node has left; nil: this is the first.
func inherit() (*legacy, error) {
	text, ok := os.LookupEnv(legacyEnv)
	if !ok {
		return nil, nil
	}
	if err := os.Unsetenv(legacyEnv); err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	fd, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("take over: %s=%s names no descriptor", legacyEnv, text)
	}
	f := os.NewFile(uintptr(fd), "legacy")
	var x legacy
	err = gob.NewDecoder(f).Decode(&x)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	for _, fd := range x.Sockets {
		unix.CloseOnExec(fd)
	}
	return &x, nil
}

// listener returns the inherited listener with a name, or opens one.
func (x *legacy) listener(name string, open func() (*net.UnixListener, error)) (*net.UnixListener, error) {
	if x == nil {
		return open()
	}
	f := os.NewFile(uintptr(x.Listeners[name]), name)
	l, err := net.FileListener(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("go on listening at %s: %w", name, err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("go on listening at %s: it is not a unix socket", name)
	}
	return u, nil
}

// takeOver makes the agent the node that the previous process was.
func (a *agent) takeOver(x *legacy) error {
	var r nodeapi.ConfigureRequest
	if err := proto.Unmarshal(x.Configure, &r); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	a.fence.Raise(x.Epoch)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sockets = x.Sockets
	n, err := newNode(&r, a.sockets, a.data, x, a.succeed)
	if err != nil {
		return fmt.Errorf("configure node %s again: %w", r.Node, err)
	}
	a.node = n
	return nil
}

// takeOver applies the inherited state to the new machine, before any input reaches it.
func (n *node) takeOver(x *legacy) error {
	n.before = &x.Counted
	if err := n.events.takeOver(x.Batch); err != nil {
		return err
	}
	for _, m := range x.Multicast {
		n.sw.SetMulticast(m)
	}
	if len(x.Down) > 0 {
		n.routes.down = x.Down
		n.routes.set(0, n.routes.find(x.Down)) // no group has been joined yet
	}
	if n.sw != nil {
		n.sw.Resume(x.Left.Last, x.Snooped)
	}
	specs, err := specsOf(n.lab, n.graph, &x.Faults)
	if err != nil {
		return err
	}
	n.faults.Resume(x.Left.Last, specs, x.Faults)
	return nil
}

// specsOf decodes the faults that the previous process had applied.
func specsOf(l *lab.Lab, g *topo.Graph, s *faults.State) (specs []faults.Spec, err error) {
	for _, f := range s.Faults {
		x, err := specOf(l, g, &nodeapi.Fault{Id: f.ID, Text: f.Text, Message: f.Message})
		if err != nil {
			return nil, fmt.Errorf("fault %s: %w", f.ID, err)
		}
		specs = append(specs, x)
	}
	return specs, nil
}
