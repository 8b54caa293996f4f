// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"github.com/mcastlab/mcastlab/orchestrator/engine/docker"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// EngineName is the runtime's name.
const EngineName = "hosts"

// Engine is the engine.Spread of the servers of a testbed: containers of all of their engines.
type Engine struct {
	State  string                  // StateDir, or a test's
	Folder func(lab string) string // of a lab's state
}

// Name implements engine.Engine.
func (Engine) Name() string { return EngineName }

// Servers implements engine.Spread. A server that is not ready takes no part; if the daemons are of another program, none does.
func (e Engine) Servers(ctx context.Context) (ready []engine.Server, absent []string, port int, err error) {
	all, err := List(ctx, Options{State: e.State})
	if err != nil {
		return nil, nil, 0, err
	}
	for _, m := range all {
		if m.State == StateReady {
			ready = append(ready, engine.Server{Node: m.Node, Name: m.Name, Address: m.Address, Cores: m.Cores, Memory: m.Memory, Labels: m.Labels})
			continue
		}
		absent = append(absent, strings.TrimSuffix(m.String()+" is "+m.State+": "+m.Error, ": "))
	}
	if len(ready) == 0 {
		return nil, nil, 0, fmt.Errorf("no server is ready: run mcastlab servers up (%s)", strings.Join(absent, "; "))
	}
	c, err := open(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	defer c.close()
	have, err := c.services(ctx, serviceName)
	if err != nil || len(have) == 0 {
		return nil, nil, 0, cmp.Or(err, errors.New("the daemons do not run: run mcastlab servers up"))
	}
	image, err := docker.EnsureHostImage(ctx, c.Client)
	if err != nil {
		return nil, nil, 0, err
	}
	if have[0].Spec.TaskTemplate.ContainerSpec.Image != image {
		return nil, nil, 0, errors.New("the daemons run another build of this program: run mcastlab servers image on the other servers, and then mcastlab servers up")
	}
	return ready, absent, portOf(&have[0]) + daemon.LinksPort, nil
}

// Ready reports why no lab can be deployed over servers.
func (e Engine) Ready(ctx context.Context) error {
	all, err := List(ctx, Options{State: e.State})
	if err != nil || !slices.ContainsFunc(all, func(m Server) bool { return m.State == StateReady }) {
		return &engine.NotReadyError{Why: "no testbed", Remedy: "mcastlab servers up"}
	}
	return nil
}

// client returns a client of a server's daemon.
func (e Engine) client(lab string, m *engine.Server) (*daemon.Client, error) {
	p, err := e.placement(lab)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("lab %s is not spread over servers", lab)
	}
	who, err := (&store{dir: e.State}).credentials()
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("this server has no certificate of a deployer: run mcastlab servers up here")
	}
	if err != nil {
		return nil, err
	}
	return daemon.NewClient(who, m.Node, daemon.At(m.Address, p.Port-daemon.LinksPort), time.Now), nil
}

// placement reads the placement of a lab; nil: it is not spread.
func (e Engine) placement(lab string) (*engine.Placement, error) {
	b, err := os.ReadFile(filepath.Join(e.Folder(lab), engine.PlacementFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	p := &engine.Placement{}
	if err == nil {
		err = checksum.ReadObject(b, p)
	}
	if err != nil {
		return nil, fmt.Errorf("read the placement of lab %s: %w", lab, needRoot(err))
	}
	return p, nil
}

// Share implements engine.Spread.
func (e Engine) Share(ctx context.Context, lab string, m *engine.Server) error {
	k, err := e.client(lab, m)
	if err != nil {
		return err
	}
	defer k.Close()
	return serverError(m, k.StartLab(ctx, lab))
}

// serverError names the server in an error.
func serverError(m *engine.Server, err error) error {
	switch {
	case err == nil:
		return nil
	case daemon.Closed(err):
		return fmt.Errorf("server %s does not answer: %w", m, err)
	}
	return fmt.Errorf("server %s: %w", m, err)
}

// Dial implements engine.Spread.
func (e Engine) Dial(ctx context.Context, lab string, m *engine.Server) (net.Conn, error) {
	k, err := e.client(lab, m)
	if err != nil {
		return nil, err
	}
	c, err := k.DialShare(ctx, lab)
	return c, serverError(m, err)
}

// Peers implements engine.Spread.
func (e Engine) Peers(lab string, m *engine.Server) (*shareapi.Peers, error) {
	p, err := e.placement(lab)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("lab %s is not spread over servers", lab)
	}
	b, err := (&store{dir: e.State}).share(lab, m.Node, time.Now())
	if err != nil {
		return nil, serverError(m, err)
	}
	q := &shareapi.Peers{Port: p.Port - daemon.LinksPort, Credentials: b}
	for _, m := range p.Servers {
		q.Nodes = append(q.Nodes, m.Node)
	}
	return q, nil
}

// DialPeer calls, as the share of a lab on one server, the share on another.
func DialPeer(ctx context.Context, lab string, s *shareapi.Share, server int) (net.Conn, error) {
	who, err := trust.ParseCredentials(s.Peers.Credentials)
	if err != nil {
		return nil, err
	}
	return daemon.NewClient(who, s.Peers.Nodes[server], daemon.At(s.Hosts[server], s.Peers.Port), time.Now).DialPeers(ctx, lab)
}

// askWait bounds a question to a share; removeWait the removal of one.
const (
	askWait    = 30 * time.Second
	removeWait = 3 * time.Minute
)

// askShare calls the service of a server's share of a lab.
func askShare(ctx context.Context, k *daemon.Client, lab string, wait time.Duration, f func(context.Context, shareapi.ShareClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c, err := k.DialShare(ctx, lab)
	if err != nil {
		return err
	}
	err = shareapi.Ask(ctx, c, func(k shareapi.ShareClient) error { return f(ctx, k) })
	if ctx.Err() != nil {
		err = fmt.Errorf("it has not answered for %v", wait)
	}
	return err
}

// ask calls the service of the share of a server.
func (e Engine) ask(ctx context.Context, lab string, m *engine.Server, f func(context.Context, shareapi.ShareClient) error) error {
	k, err := e.client(lab, m)
	if err != nil {
		return err
	}
	return serverError(m, askShare(ctx, k, lab, askWait, f))
}

// removeTries limits the requests to a server to remove its share while it closes the connection.
const removeTries = 3

// removeShare has a server remove its share of a lab.
func removeShare(ctx context.Context, k *daemon.Client, lab string) (err error) {
	for range removeTries {
		if err = k.StartLab(ctx, lab); err == nil { // its process may have died
			err = askShare(ctx, k, lab, removeWait, func(ctx context.Context, k shareapi.ShareClient) error {
				_, err := k.Remove(ctx, &shareapi.RemoveRequest{})
				return err
			})
		}
		if err == nil {
			return k.EndLab(ctx, lab)
		}
		if !errors.Is(err, shareapi.ErrHungUp) && !errors.Is(err, io.EOF) || sleep(ctx, startWait) != nil {
			return err
		}
	}
	return err
}

// each calls f for all servers of a lab at once.
func (e Engine) each(lab string, f func(i int, m *engine.Server) error) error {
	p, err := e.placement(lab)
	if err != nil || p == nil {
		return err
	}
	errs := make([]error, len(p.Servers))
	var all sync.WaitGroup
	for i := range p.Servers {
		all.Go(func() { errs[i] = f(i, &p.Servers[i]) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Start implements engine.Engine.
func (Engine) Start(context.Context, string, []engine.Node, func(effect, object string) error) error {
	return errors.New("nodes on several servers are started by the servers")
}

// Find implements engine.Engine. The processes are those of other servers.
func (e Engine) Find(ctx context.Context, lab string) (found []engine.Running, err error) {
	var mu sync.Mutex
	err = e.each(lab, func(_ int, m *engine.Server) error {
		var a *shareapi.LookReply
		err := e.ask(ctx, lab, m, func(ctx context.Context, k shareapi.ShareClient) (err error) {
			a, err = k.Look(ctx, &shareapi.LookRequest{})
			return err
		})
		if errors.Is(err, daemon.ErrNoShare) { // it has nothing, or its process has died, and is started when the lab is removed
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for _, n := range a.GetNodes() {
			found = append(found, engine.Running{Name: n.Name, PID: int(n.Pid)})
		}
		return err
	})
	slices.SortFunc(found, func(a, b engine.Running) int { return strings.Compare(a.Name, b.Name) })
	return found, err
}

// Labs implements engine.Engine. What is on other servers is found by the labs' folders here.
func (Engine) Labs(context.Context) ([]string, error) { return nil, nil }

// Remove implements engine.Engine. Servers that cannot be reached are named, and the others are done all the same.
func (e Engine) Remove(ctx context.Context, lab string, nodes ...string) error {
	if len(nodes) > 0 {
		return errors.New("single nodes of a lab on several servers are not removed")
	}
	err := e.each(lab, func(_ int, m *engine.Server) error {
		k, err := e.client(lab, m)
		if err != nil {
			return err
		}
		defer k.Close()
		return serverError(m, removeShare(ctx, k, lab))
	})
	if err != nil {
		return fmt.Errorf("%w\nwhat these servers have of lab %s is left: mcastlab destroy %s again when they answer", err, lab, lab)
	}
	return nil
}

// Logs implements engine.Engine.
func (e Engine) Logs(ctx context.Context, lab, node string) ([]byte, error) {
	var log []byte
	var mu sync.Mutex
	err := e.each(lab, func(_ int, m *engine.Server) error {
		return e.ask(ctx, lab, m, func(ctx context.Context, k shareapi.ShareClient) error {
			a, err := k.Logs(ctx, &shareapi.LogsRequest{Node: node})
			mu.Lock()
			defer mu.Unlock()
			log = append(log, a.GetLog()...)
			return err
		})
	})
	return log, err
}
