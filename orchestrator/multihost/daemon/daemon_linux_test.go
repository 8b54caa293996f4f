// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// testDaemon is a daemon of a test.
type testDaemon struct {
	node, dir string
	at        chan string // addresses at which it listens
	address   string
}

// start runs a daemon whose clock is ahead; pass may keep datagrams from it.
func start(t *testing.T, node string, ahead time.Duration, pass func(int) bool) *testDaemon {
	t.Helper()
	return startKeeping(t, node, ahead, pass, nil)
}

// startKeeping is start of a daemon that keeps labs.
func startKeeping(t *testing.T, node string, ahead time.Duration, pass func(int) bool, labs Labs) *testDaemon {
	t.Helper()
	m := &testDaemon{node: node, dir: filepath.Join(t.TempDir(), "state"), at: make(chan string, 8)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, Options{
			Node: node, Dir: m.dir, Listen: "127.0.0.1:0", Version: "test", Clock: func() time.Time { return time.Now().Add(ahead) },
			Engine: func(context.Context) error { return errors.New("it is asleep") }, Log: t.Logf, Labs: labs, pass: pass, listening: func(a string) { m.at <- a },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

// enrol gives it credentials, and waits until it listens.
func (m *testDaemon) enrol(t *testing.T, a *trust.Authority) {
	t.Helper()
	if err := Keep(m.dir, issue(t, a, trust.Host, m.node)); err != nil {
		t.Fatal(err)
	}
	m.await(t)
}

func (m *testDaemon) await(t *testing.T) {
	t.Helper()
	select {
	case m.address = <-m.at:
	case <-time.After(time.Minute):
		t.Fatal("the daemon does not listen")
	}
}

func authority(t *testing.T) *trust.Authority {
	t.Helper()
	a, err := trust.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *trust.Authority, role trust.Role, node string) *trust.Credentials {
	t.Helper()
	c, err := a.Issue(trust.Identity{Role: role, Node: node}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func client(t *testing.T, c *trust.Credentials, m *testDaemon) *Client {
	t.Helper()
	k := NewClient(c, m.node, m.address, time.Now)
	t.Cleanup(k.Close)
	return k
}

// TestCredentialsComeAndGo: a daemon listens when it has credentials, takes new ones up, and listens no more when they
// have gone, or are another server's.
func TestCredentialsComeAndGo(t *testing.T) {
	a, b := authority(t), authority(t)
	m := start(t, "m1", 0, nil)
	m.enrol(t, a)
	first := m.address
	st, ahead, err := client(t, issue(t, a, trust.Deployer, "m0"), m).Status(t.Context())
	if err != nil || st.Node != "m1" || st.Version != "test" || st.Engine != "it is asleep" || ahead.Abs() > requestWait {
		t.Fatalf("%+v, %v ahead, %v", st, ahead, err)
	}
	m.enrol(t, b)
	if _, _, err := client(t, issue(t, a, trust.Deployer, "m0"), m).Status(t.Context()); err == nil {
		t.Error("the authority of before is still obeyed")
	}
	if _, _, err := client(t, issue(t, b, trust.Deployer, "m0"), m).Status(t.Context()); err != nil {
		t.Errorf("the new authority is not obeyed: %v", err)
	}
	if _, err := net.Dial("tcp", first); err == nil && first != m.address {
		t.Error("it still listens with the credentials of before")
	}
	if err := Leave(m.dir); err != nil {
		t.Fatal(err)
	}
	gone := func() { // it looks every quarter of a second
		for until := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
			c, err := net.Dial("tcp", m.address)
			if err != nil {
				return
			}
			if err := c.Close(); err != nil || time.Now().After(until) {
				t.Fatalf("it listens without credentials of its own, %v", err)
			}
		}
	}
	gone()
	m.enrol(t, a)
	if err := Keep(m.dir, issue(t, a, trust.Host, "m2")); err != nil {
		t.Fatal(err)
	}
	gone()
}

// TestProbe: three servers probe each other. Of one, only small frames come in; of one, the clock is ahead; one does not
// listen: each is seen where it is, and nowhere else.
func TestProbe(t *testing.T) {
	a := authority(t)
	fine := start(t, "fine", 0, nil)
	narrow := start(t, "narrow", 0, func(bytes int) bool { return bytes < 1500 })
	fast := start(t, "fast", time.Hour/2, nil)
	for _, m := range []*testDaemon{fine, narrow, fast} {
		m.enrol(t, a)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := Peer{"away", l.Addr().String(), true}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	impostor := Peer{"impostor", fine.address, false}
	seen, err := client(t, issue(t, a, trust.Deployer, "m0"), fine).Probe(t.Context(),
		[]Peer{{narrow.node, narrow.address, true}, {fast.node, fast.address, false}, away, impostor})
	if err != nil {
		t.Fatal(err)
	}
	if s := seen[0]; s.Error != "" || s.From != "fine" || s.To != "narrow" || !slices.Equal(s.Frames, []int{128, 1464}) || s.Ahead.Abs() > s.RoundTrip || s.RoundTrip <= 0 {
		t.Errorf("narrow: %+v", s)
	}
	if s := seen[0]; s.LinksTried && !slices.Equal(s.Links, []int{128, 1464}) {
		t.Errorf("links to narrow: %+v", s)
	}
	if s := seen[1]; s.LinksTried || s.Error != "" || !slices.Equal(s.Frames, Frames()) || (s.Ahead-time.Hour/2).Abs() > s.RoundTrip {
		t.Errorf("fast: %+v", s)
	}
	if s := seen[2]; s.Error == "" || !s.Closed {
		t.Errorf("away: %+v", s)
	}
	if s := seen[3]; !strings.Contains(s.Error, "host fine, and not the host impostor") || s.Closed {
		t.Errorf("impostor: %+v", s)
	}
	seen, err = client(t, issue(t, a, trust.Deployer, "m0"), narrow).Probe(t.Context(), []Peer{{fine.node, fine.address, true}})
	if err != nil || seen[0].Error != "" || !slices.Equal(seen[0].Frames, Frames()) {
		t.Errorf("from narrow: %+v, %v", seen, err)
	}
	linksInUse(t, client(t, issue(t, a, trust.Deployer, "m0"), narrow), fine)
}

// linksInUse: the port of links is tried while no program has it, is free again afterwards, and is not tried while another program has it.
func linksInUse(t *testing.T, c *Client, m *testDaemon) {
	t.Helper()
	host, port, err := portOf(m.address)
	if err != nil {
		t.Fatal(err)
	}
	p, err := net.ListenPacket("udp", At(host, port+LinksPort))
	if err != nil {
		t.Skip(err) // another program has it
	}
	for _, free := range []bool{false, true, true} {
		seen, err := c.Probe(t.Context(), []Peer{{m.node, m.address, true}})
		if err != nil || seen[0].Error != "" || seen[0].LinksTried != free || free && !slices.Equal(seen[0].Links, Frames()) {
			t.Errorf("of a port of links that is free, %t: %+v, %v", free, seen, err)
		}
		if free {
			if p, err = net.ListenPacket("udp", At(host, port+LinksPort)); err != nil { // the daemon has left it
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStrangersDatagrams: datagrams of no session, with another's proof or of another length, are counted and bring nothing.
func TestStrangersDatagrams(t *testing.T) {
	s := sessions{clock: time.Now, open: map[session]*expected{}}
	e, err := s.begin()
	if err != nil {
		t.Fatal(err)
	}
	id := session(e.Session)
	wrong := make([]byte, keyBytes)
	good := appendProbe(nil, id, e.Key, 1464)
	for _, b := range [][]byte{
		nil, {1, 2, 3}, appendProbe(nil, session{}, e.Key, 1464), appendProbe(nil, id, wrong, 1464), good[:len(good)-1], append(slices.Clone(good), 0),
	} {
		s.take(b)
	}
	if got, err := s.arrived(e.Session); err != nil || len(got) != 0 || s.strangers() != 6 {
		t.Errorf("%v arrived, %d strange, %v", got, s.strangers(), err)
	}
	s.take(good)
	s.take(good)
	if got, err := s.arrived(e.Session); err != nil || !slices.Equal(got, []int{1464}) || s.strangers() != 6 {
		t.Errorf("%v arrived, %d strange, %v", got, s.strangers(), err)
	}
	for _, b := range [][]byte{nil, {0}, make([]byte, sessionBytes), make([]byte, sessionBytes+1)} {
		if _, err := s.arrived(b); err == nil {
			t.Errorf("session %x is one", b)
		}
	}
}

// TestSessionsEnd: sessions are given up after a while, and are bounded in number.
func TestSessionsEnd(t *testing.T) {
	now := time.Now()
	s := sessions{clock: func() time.Time { return now }, open: map[session]*expected{}}
	for range sessionsMax {
		if _, err := s.begin(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.begin(); err == nil {
		t.Error("there is no bound")
	}
	now = now.Add(sessionWait + 1)
	if _, err := s.begin(); err != nil || len(s.open) != 1 {
		t.Errorf("%d sessions, %v", len(s.open), err)
	}
}

// joinServer runs the join of a server and returns where it listens and how it ends.
func joinServer(t *testing.T, token string, nodes ...string) (dir, address string, ended chan error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	at := make(chan string, 1)
	ended = make(chan error, 1)
	go func() {
		ended <- Join(t.Context(), JoinOptions{
			Node: "m1", Nodes: nodes, Dir: dir, Listen: "127.0.0.1:0", Token: file, Clock: time.Now, listening: func(a string) { at <- a },
		})
	}()
	select {
	case address = <-at:
	case err := <-ended:
		ended <- err
	}
	return dir, address, ended
}

// TestJoin: intruders come first, one that says nothing, one that says nonsense, one with another token and one that speaks
// no TLS; then the deployer, once. The server has its credentials then, and its port is closed.
func TestJoin(t *testing.T) {
	token, err := trust.NewToken()
	if err != nil {
		t.Fatal(err)
	}
	a := authority(t)
	dir, address, ended := joinServer(t, token.String(), "m0", "m1")
	dial := func() *tls.Conn {
		config, err := trust.Stranger(time.Now)
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.Dial("tcp", address, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dial() // and says nothing
	plain, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	nonsense := dial()
	if _, err := nonsense.Write([]byte("{\"proof\": 7}\n")); err != nil {
		t.Fatal(err)
	}
	if b, err := bufio.NewReader(nonsense).ReadByte(); err == nil {
		t.Errorf("nonsense is answered with %q", b)
	}
	other, err := trust.NewToken()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority(t).Admit(dial(), other, "m1", time.Second, time.Now); err == nil {
		t.Error("a deployer with another token is obeyed")
	}
	if _, err := Load(dir); err == nil {
		t.Error("an intruder has brought credentials")
	}
	if _, err := a.Admit(dial(), token, "m1", time.Minute, time.Now); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c, err := Load(dir)
	if err != nil || c.Identity() != (trust.Identity{Role: trust.Host, Node: "m1"}) || !c.Signed(a) {
		t.Fatalf("%v, %v", c, err)
	}
	if info, err := os.Stat(filepath.Join(dir, credentialsFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		_ = c.Close()
		t.Error("the token serves twice")
	}
}

// TestJoinNotMeant: a server that is not to get a certificate does not listen, and one without a token says so.
func TestJoinNotMeant(t *testing.T) {
	token, err := trust.NewToken()
	if err != nil {
		t.Fatal(err)
	}
	if _, address, ended := joinServer(t, token.String(), "m0"); address != "" || <-ended != nil {
		t.Errorf("it listens at %q", address)
	}
	if _, address, ended := joinServer(t, "x", "m1"); address != "" || <-ended == nil {
		t.Errorf("it listens at %q without a token", address)
	}
}

// goldenProbe is the beginning of a probe; its proof was computed by Python's hmac.
const goldenProbe = "0800000000000000" + "020000000002" + "020000000001" + "88b5" + "000102030405060708090a0b0c0d0e0f" +
	"b33be1fa64a797aec4e43810cda9db450823e624b33175d5cd0298a310926bcc"

// TestProbeBytes: the layout of a probe, the way back, and every truncation.
func TestProbeBytes(t *testing.T) {
	var id session
	for i := range id {
		id[i] = byte(i)
	}
	key := []byte("a key of thirty-two bytes, exact")
	b := appendProbe([]byte("before"), id, key, 128)[6:]
	if got := fmt.Sprintf("%x", b); !strings.HasPrefix(got, goldenProbe) || strings.Trim(got[len(goldenProbe):], "0") != "" || len(b) != 136 {
		t.Errorf("%s, %d bytes", got, len(b))
	}
	for _, frame := range append(Frames(), probeHeader-vxlanBytes) {
		b := appendProbe(nil, id, key, frame)
		s, proof, n, ok := parseProbe(b)
		if !ok || s != id || n != frame || len(b) != frame+vxlanBytes || !slices.Equal(proof, proofOf(id, key, frame)) {
			t.Errorf("%d: session %x, frame %d, %v", frame, s, n, ok)
		}
	}
	for n := range b {
		_, proof, frame, ok := parseProbe(b[:n])
		if ok != (n >= probeHeader) || ok && slices.Equal(proof, proofOf(id, key, frame)) {
			t.Fatalf("cut off after %d bytes it is a probe: %v", n, ok)
		}
	}
	for n := range probeHeader {
		changed := slices.Clone(b)
		changed[n] ^= 1
		if s, proof, frame, ok := parseProbe(changed); ok && s == id && slices.Equal(proof, proofOf(id, key, frame)) {
			t.Errorf("it does not matter what byte %d is", n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { parseProbe(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParseProbe: no datagram ends the daemon, and a datagram that parses as a probe is the probe that its fields make.
func FuzzParseProbe(f *testing.F) {
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		f.Fatal(err)
	}
	f.Add(appendProbe(nil, session{1}, key, 128))
	f.Add([]byte{8})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, proof, frame, ok := parseProbe(b)
		if !ok {
			return
		}
		again := appendProbe(nil, s, key, frame)
		copy(again[proofAt:], proof)
		if !slices.Equal(again, b) {
			t.Errorf("%x is read as %x", b, again)
		}
	})
}
