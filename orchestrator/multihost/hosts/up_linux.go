// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/orchestrator/engine/docker"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// Options are the settings of a testbed of servers.
type Options struct {
	Port  int                              // of the daemons
	State string                           // StateDir, or a test's
	Say   func(format string, args ...any) // reports each step

	Folder func(lab string) string // of the state of a lab that was deployed here
}

// up is a `servers up` under way.
type up struct {
	*cluster
	o         Options
	authority *trust.Authority
	deployer  *trust.Credentials
	image     string
	all       []Server
}

// Up starts the daemon on every server of the Swarm, gives those a certificate that have none, and probes the ways between them. What
// is there already is left as it is. Servers that cannot take part are named in the error, and the others are up all the same.
func Up(ctx context.Context, o Options) ([]Server, error) {
	s := store{dir: o.State}
	c, err := open(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := s.open(ctx, o.Say); err != nil {
		return nil, err
	}
	defer s.close()
	u := &up{cluster: c, o: o}
	if u.authority, err = s.authority(c.clock()); err != nil {
		return nil, err
	}
	if u.deployer, err = s.deployer(u.authority, c.node, c.clock()); err != nil {
		return nil, err
	}
	if u.all, err = c.servers(ctx); err != nil {
		return nil, err
	}
	if err := u.clear(ctx); err != nil {
		return nil, err
	}
	if u.image, err = docker.EnsureHostImage(ctx, c.Client); err != nil {
		return nil, err
	}
	if err := u.start(ctx); err != nil {
		return nil, err
	}
	if err := u.certify(ctx); err != nil {
		return nil, err
	}
	return u.all, u.check(ctx)
}

// reached reports whether the Swarm reaches a node.
func (u *up) reached(node string) bool { return reached(u.all, node) }

func reached(all []Server, node string) bool {
	return slices.ContainsFunc(all, func(m Server) bool { return m.Node == node && m.State != StateDown })
}

// clear removes the jobs and secrets that an interrupted command has left.
func (u *up) clear(ctx context.Context) error {
	some, err := u.remove(ctx, u.reached, joinName, leaveName)
	if some {
		u.o.Say("removed what an interrupted command had left")
	}
	if err != nil {
		return err
	}
	return u.removeSecrets(ctx)
}

// part returns the servers that may take part, so far.
func (u *up) part() (nodes []string) {
	for _, m := range u.all {
		if m.State == "" {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

func (u *up) server(node string) *Server {
	return &u.all[slices.IndexFunc(u.all, func(m Server) bool { return m.Node == node })]
}

// fail records why a server cannot take part.
func (m *Server) fail(state string, err error) { m.State, m.Error = state, err.Error() }

// start has the Swarm run the daemon everywhere.
func (u *up) start(ctx context.Context) error {
	want := daemonSpec(u.image, u.o.Port)
	have, err := u.services(ctx, serviceName)
	switch {
	case err != nil:
		return err
	case len(have) == 0:
		u.o.Say("starting the daemon on %s", servers(len(u.part())))
		if _, err := u.create(ctx, want); err != nil {
			return err
		}
	case have[0].Spec.Labels[labelSpec] != want.Labels[labelSpec]:
		u.o.Say("updating the daemon on %s", servers(len(u.part())))
		err := failpoint.At("update service", func() error {
			_, err := u.ServiceUpdate(ctx, have[0].ID, have[0].Version, want, swarm.ServiceUpdateOptions{})
			return err
		})
		if err != nil {
			return fmt.Errorf("update service %s: %w", serviceName, err)
		}
	}
	failed, err := u.reach(ctx, serviceName, want.Labels[labelSpec], swarm.TaskStateRunning, u.part())
	for node, why := range failed { // independent of each other
		u.server(node).fail(StateStopped, why)
	}
	return err
}

// certify gives servers a certificate that have none of this authority that holds for long enough.
func (u *up) certify(ctx context.Context) error {
	var need []string
	asked := u.ask(ctx, u.part(), startWait)
	for _, node := range u.part() {
		if a := asked[node]; a.err != nil || time.Unix(a.status.Ends, 0).Before(u.clock().Add(trust.Renew)) {
			need = append(need, node)
		}
	}
	if len(need) == 0 {
		return nil
	}
	u.o.Say("giving %s a certificate", servers(len(need)))
	return u.join(ctx, need)
}

// startWait is the time limit for a daemon with a certificate to listen once its container runs, and takeWait that for one with
// a new certificate.
const (
	startWait = time.Second
	takeWait  = 10 * time.Second
)

// join runs the job on the servers, and signs the key of each that knows the token.
func (u *up) join(ctx context.Context, nodes []string) (err error) {
	token, err := trust.NewToken()
	if err != nil {
		return err
	}
	defer func() { // the token ends with the command that drew it
		ctx := context.WithoutCancel(ctx)
		_, failed := u.remove(ctx, u.reached, joinName)
		if failed == nil {
			failed = u.removeSecrets(ctx)
		}
		err = errors.Join(err, failed)
	}()
	var secret string
	err = failpoint.At("create secret", func() error {
		r, err := u.SecretCreate(ctx, swarm.SecretSpec{
			Annotations: swarm.Annotations{Name: secretName, Labels: map[string]string{labelPart: joinName}}, Data: []byte(token.String()),
		})
		secret = r.ID
		return err
	})
	if err != nil {
		return fmt.Errorf("create secret %s: %w", secretName, err)
	}
	job := joinSpec(u.image, u.o.Port, secret, nodes)
	id, err := u.create(ctx, job)
	if err != nil {
		return err
	}
	failed, err := u.reach(ctx, id, job.Labels[labelSpec], swarm.TaskStateRunning, nodes)
	if err != nil {
		return err
	}
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, node := range nodes {
		switch errs[i] = failed[node]; {
		case errs[i] == nil:
			all.Go(func() { errs[i] = u.admit(ctx, u.server(node), token) })
		case errors.Is(errs[i], errEnded):
			errs[i] = fmt.Errorf("%w: if TCP port %d is in use there, choose others by --port", errs[i], u.o.Port+1)
		}
	}
	all.Wait()
	for i, node := range nodes {
		if errs[i] != nil {
			u.server(node).fail(StateNoTrust, errs[i])
		}
	}
	return ctx.Err()
}

// admitWait is the time limit for a server to listen once the job runs there.
const admitWait = 5 * time.Second

// admit signs the key of one server.
func (u *up) admit(ctx context.Context, m *Server, token trust.Token) error {
	config, err := trust.Stranger(u.clock)
	if err != nil {
		return err
	}
	address := daemon.At(m.Address, u.o.Port+1)
	for until := time.Now().Add(admitWait); ; {
		conn, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: 3 * time.Second}, Config: config}).DialContext(ctx, "tcp", address)
		if err == nil {
			ahead, err := u.authority.Admit(conn.(*tls.Conn), token, m.Node, ClockLimit, u.clock)
			_ = conn.Close()
			if errors.Is(err, trust.ErrClock) {
				return errors.New(strings.TrimPrefix(clockLine(m, ahead, "this server's"), m.String()+": "))
			}
			return err
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", closed(u.o.Port+1, u.o.Port), err)
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// closed says that a port does not answer, when the daemons have another.
func closed(port, daemons int) error {
	return fmt.Errorf("TCP port %d does not answer: let TCP and UDP ports %d, and TCP port %d, pass between the servers", port, daemons, daemons+1)
}

// asked is the reply of a daemon.
type asked struct {
	status *daemon.Status
	ahead  time.Duration
	err    error
}

// ask asks daemons for their status, again for a while if one does not listen yet.
func (u *up) ask(ctx context.Context, nodes []string, wait time.Duration) map[string]asked {
	return ask(ctx, u.cluster, u.deployer, u.all, nodes, u.o.Port, wait)
}

func ask(ctx context.Context, c *cluster, who *trust.Credentials, all []Server, nodes []string, port int, wait time.Duration) map[string]asked {
	answers := map[string]asked{}
	var mu sync.Mutex
	var running sync.WaitGroup
	for _, m := range all {
		if !slices.Contains(nodes, m.Node) {
			continue
		}
		running.Go(func() {
			k := daemon.NewClient(who, m.Node, daemon.At(m.Address, port), c.clock)
			defer k.Close()
			var a asked
			for until := time.Now().Add(wait); ; {
				if a.status, a.ahead, a.err = k.Status(ctx); a.err == nil || time.Now().After(until) || sleep(ctx, pollEvery) != nil {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			answers[m.Node] = a
		})
	}
	running.Wait()
	return answers
}

// take writes what a daemon has said into its server.
func (m *Server) take(a asked, port int) {
	switch {
	case a.err != nil && daemon.Closed(a.err):
		m.fail(StateUnasked, closed(port, port))
	case a.err != nil:
		m.fail(StateNoTrust, fmt.Errorf("its daemon cannot be asked: %w: mcastlab servers up gives it another certificate", a.err))
	case a.status.GetEngine() != "":
		m.fail(StateUnasked, fmt.Errorf("its daemon does not reach the engine: %s", a.status.GetEngine()))
	default:
		ahead := int64(a.ahead)
		m.State, m.Version, m.Ahead = StateReady, a.status.GetVersion(), &ahead
	}
}

// check asks all daemons, has them probe each other, and returns what is wrong, a line each.
func (u *up) check(ctx context.Context) error {
	nodes := u.part()
	answers := u.ask(ctx, nodes, takeWait)
	for _, node := range nodes {
		u.server(node).take(answers[node], u.o.Port)
	}
	var ready []Server
	var lines []string
	for _, m := range u.all {
		switch {
		case m.State == StateReady:
			ready = append(ready, m)
		case m.Error != "":
			lines = append(lines, fmt.Sprintf("%s: %s", &m, m.Error))
		}
	}
	if len(ready) > 1 {
		u.o.Say("probing the ways between %d servers", len(ready))
	}
	seen, err := u.probe(ctx, ready)
	if err != nil {
		return err
	}
	lines = append(append(lines, diagnose(ready, seen, u.o.Port)...), clocks(ready)...)
	if len(lines) > 0 {
		return errors.New(strings.Join(lines, "\n"))
	}
	return nil
}

// probe has each server probe the others.
func (u *up) probe(ctx context.Context, ready []Server) (seen []daemon.Seen, err error) {
	found := make([][]daemon.Seen, len(ready))
	errs := make([]error, len(ready))
	var all sync.WaitGroup
	for i, m := range ready {
		var peers []daemon.Peer
		for _, p := range ready {
			if p.Node != m.Node {
				peers = append(peers, daemon.Peer{Node: p.Node, Address: daemon.At(p.Address, u.o.Port)})
			}
		}
		all.Go(func() {
			k := daemon.NewClient(u.deployer, m.Node, daemon.At(m.Address, u.o.Port), u.clock)
			defer k.Close()
			if found[i], errs[i] = k.Probe(ctx, peers); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: probe the others: %w", &m, errs[i])
			}
		})
	}
	all.Wait()
	return slices.Concat(found...), errors.Join(errs...)
}
