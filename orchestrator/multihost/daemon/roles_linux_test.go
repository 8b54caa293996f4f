// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// TestRoles: the answer of a daemon to each role, for every method and stream; and none at all to a certificate without a role.
func TestRoles(t *testing.T) {
	a := authority(t)
	m := start(t, "m1", 0, nil)
	m.enrol(t, a)
	for name, c := range intruders(t, a) {
		if err := refusal(t, c, m); err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
			t.Errorf("with %s: the daemon does not refuse the connection: %v", name, err)
		}
	}
	if err := refusal(t, issue(t, a, trust.Deployer, "m0").Client("m1", time.Now), m); !errors.Is(err, io.EOF) {
		t.Errorf("a connection without a protocol: %v", err)
	}
	methods := []string{shareStream, peersStream}
	for _, x := range Daemon_ServiceDesc.Methods {
		methods = append(methods, "/"+Daemon_ServiceDesc.ServiceName+"/"+x.MethodName)
	}
	if len(Daemon_ServiceDesc.Streams) > 0 || len(roles()) != len(methods) {
		t.Errorf("%d methods have roles, of %d; streams of gRPC pass no interceptor", len(roles()), len(methods))
	}
	may := map[trust.Role][]string{}
	for _, method := range append(methods, "/"+Daemon_ServiceDesc.ServiceName+"/Unknown") {
		known := method != "/"+Daemon_ServiceDesc.ServiceName+"/Unknown"
		if all := roles()[method]; (len(all) > 0) != known {
			t.Errorf("%s has the roles %v", method, all)
		}
		for _, id := range []trust.Identity{
			{Role: trust.Deployer, Node: "m9"}, {Role: trust.Host, Node: "m9"},
			{Role: trust.Share, Node: "m9", Lab: "lab"}, {Role: trust.Share, Node: "m9", Lab: "other"},
		} {
			refused := fmt.Sprintf("%s may not call %s", id, path.Base(method))
			if !known {
				if err := allowed(id, method, "lab"); err == nil || err.Error() != refused {
					t.Errorf("%s: %v", refused, err)
				}
				continue
			}
			c, err := a.Issue(id, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			err = call(t, client(t, c, m), method)
			if (err != nil && err.Error() == refused) == (slices.Contains(roles()[method], id.Role) && id.Lab != "other") {
				t.Errorf("%s of %s: %v", method, id, err)
			}
		}
		for _, role := range roles()[method] {
			may[role] = append(may[role], path.Base(method))
		}
	}
	if got := strings.Join(may[trust.Host], " "); got != "Clock Expect Arrived" {
		t.Errorf("hosts may call %s", got)
	}
	if got := strings.Join(may[trust.Share], " "); got != "peers" {
		t.Errorf("shares may call %s", got)
	}
}

// call calls a method with an empty request, or one for a lab, or opens a stream.
func call(t *testing.T, k *Client, method string) error {
	t.Helper()
	var q proto.Message = &StatusRequest{}
	dial := k.DialShare
	switch method {
	case Daemon_StartLab_FullMethodName, Daemon_EndLab_FullMethodName:
		q = &StartLabRequest{Lab: "lab"}
	case peersStream:
		dial = k.DialPeers
		fallthrough
	case shareStream:
		c, err := dial(t.Context(), "lab")
		if err == nil {
			err = c.Close()
		}
		return err
	}
	return k.ask(t.Context(), func(ctx context.Context, _ DaemonClient) error {
		return k.conn.Invoke(ctx, method, q, &StartLabReply{})
	})
}

// pipeLabs are the shares of one lab. They answer with their socket's name.
type pipeLabs struct {
	Labs
	t *testing.T
}

// Dial implements Labs.
func (l *pipeLabs) Dial(_ context.Context, lab string) (net.Conn, error) { return l.dial(lab, "share") }

// DialPeers implements Labs.
func (l *pipeLabs) DialPeers(_ context.Context, lab string) (net.Conn, error) {
	return l.dial(lab, "peers")
}

func (l *pipeLabs) dial(lab, name string) (net.Conn, error) {
	if lab != "lab" {
		return nil, ErrNoShare
	}
	near, far := net.Pipe()
	go func() {
		b := make([]byte, 4)
		for {
			if _, err := io.ReadFull(far, b); err != nil {
				return
			}
			_, _ = far.Write(append([]byte(name+" "), b...)) // the other end sees what is missing
		}
	}()
	return near, nil
}

// TestStreams: bytes pass both ways between a caller and the socket of a share that its role may reach, until either ends or the daemon stops listening.
func TestStreams(t *testing.T) {
	a := authority(t)
	m := startKeeping(t, "m1", 0, nil, &pipeLabs{t: t})
	m.enrol(t, a)
	deployer := client(t, issue(t, a, trust.Deployer, "m0"), m)
	who, err := a.Issue(trust.Identity{Role: trust.Share, Node: "m0", Lab: "lab"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	for name, dial := range map[string]func(context.Context, string) (net.Conn, error){"share": deployer.DialShare, "peers": client(t, who, m).DialPeers} {
		c, err := dial(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, len("share ping"))
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil || string(b) != name+" ping" {
			t.Errorf("%q, %v", b, err)
		}
		open = append(open, c)
	}
	if _, err := deployer.DialShare(t.Context(), "none"); !errors.Is(err, ErrNoShare) {
		t.Errorf("a lab that is not here: %v", err)
	}
	if _, err := deployer.DialShare(t.Context(), "../x"); err == nil || !strings.Contains(err.Error(), "cannot be the name of a lab") {
		t.Errorf("no name of a lab: %v", err)
	}
	m.enrol(t, authority(t))
	for _, c := range open {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a stream outlives the daemon's port")
		}
		_ = c.Close() // it has ended
	}
}

// TestLargeRequest: a request has a bound.
func TestLargeRequest(t *testing.T) {
	a := authority(t)
	m := start(t, "m1", 0, nil)
	m.enrol(t, a)
	k := client(t, issue(t, a, trust.Deployer, "m0"), m)
	if _, err := k.Probe(t.Context(), []Peer{{Node: strings.Repeat("x", requestMax)}}); err == nil || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("a request of more than %d bytes: %v", requestMax, err)
	}
	if _, err := k.Probe(t.Context(), make([]Peer, peersMax+1)); err == nil || !strings.Contains(err.Error(), "peers are more than") {
		t.Errorf("%d peers: %v", peersMax+1, err)
	}
	if labs, err := k.Labs(t.Context()); err != nil || len(labs) > 0 {
		t.Errorf("%v, %v", labs, err)
	}
}

// refusal connects, sends nothing, and returns how the daemon ends the connection. A client that sends a request
// may learn of the closed connection before it reads the alert.
func refusal(t *testing.T, config *tls.Config, m *testDaemon) error {
	t.Helper()
	conn, err := tls.Dial("tcp", m.address, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return err
}

// intruders are TLS configurations without a certificate that a daemon would take. They take any daemon.
func intruders(t *testing.T, a *trust.Authority) map[string]*tls.Config {
	t.Helper()
	ended, err := a.Issue(trust.Identity{Role: trust.Deployer, Node: "m0"}, time.Now().Add(-trust.Valid-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*tls.Config{
		"no certificate":       {InsecureSkipVerify: true},
		"an expired one":       ended.Client("m1", time.Now),
		"of another authority": issue(t, authority(t), trust.Deployer, "m0").Client("m1", time.Now),
	}
	all["of another authority"].VerifyConnection = nil
	return all
}
