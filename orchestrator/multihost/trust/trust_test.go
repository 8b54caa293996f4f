// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func fixed(at time.Time) func() time.Time { return func() time.Time { return at } }

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority(noon)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, role Role, node string, at time.Time) *Credentials {
	t.Helper()
	c, err := a.Issue(Identity{Role: role, Node: node}, at)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connect has a client meet a server, and returns what each makes of it.
func connect(t *testing.T, client, server *tls.Config) (who Identity, clientErr, serverErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer c.Close()
		s := tls.Server(c, server)
		if err := s.HandshakeContext(t.Context()); err != nil {
			done <- err
			return
		}
		state := s.ConnectionState()
		if who, err = Peer(&state); err == nil {
			_, err = s.Write([]byte("in"))
		}
		done <- err
	}()
	clientErr = func() error {
		c, err := (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = io.ReadFull(c, make([]byte, 2)) // in TLS 1.3 a client learns here that its certificate is refused
		return err
	}()
	serverErr = <-done
	return who, clientErr, serverErr
}

// TestWhoGetsIn: a port takes certificates of its own authority while they hold and as long as they are for clients, and
// a client takes the one server it asked for.
func TestWhoGetsIn(t *testing.T) {
	a, other := authority(t), authority(t)
	server := issue(t, a, Host, "m1", noon)
	now := fixed(noon)
	for _, x := range []struct {
		name   string
		client *tls.Config
		server *Credentials
		in     bool
		want   string // of the error of the side that refuses
	}{
		{"deployer", issue(t, a, Deployer, "m0", noon).Client("m1", now), server, true, ""},
		{"host", issue(t, a, Host, "m2", noon).Client("m1", now), server, true, ""},
		{"no certificate", &tls.Config{InsecureSkipVerify: true}, server, false, "certificate"},
		{"TLS 1.2", &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}, server, false, "version"},
		{"another authority", issue(t, other, Deployer, "m0", noon).clientUnchecked(), server, false, "unknown authority"},
		{"expired", issue(t, a, Deployer, "m0", noon.Add(-Valid-time.Minute)).clientUnchecked(), server, false, "expired"},
		{"not yet valid", issue(t, a, Deployer, "m0", noon.Add(2*time.Hour)).clientUnchecked(), server, false, "not yet valid"},
		{"another server answers", issue(t, a, Deployer, "m0", noon).Client("m3", now), server, false, "host m1, and not the host m3"},
		{"a deployer answers", issue(t, a, Deployer, "m0", noon).Client("m1", now), issue(t, a, Deployer, "m1", noon), false, "usage"},
		{"another authority answers", issue(t, a, Deployer, "m0", noon).Client("m1", now), issue(t, other, Host, "m1", noon), false, "unknown authority"},
		{"an expired server answers", issue(t, a, Deployer, "m0", noon).Client("m1", now), issue(t, a, Host, "m1", noon.Add(-Valid-time.Minute)), false, "expired"},
	} {
		t.Run(x.name, func(t *testing.T) {
			who, clientErr, serverErr := connect(t, x.client, x.server.Server(now))
			if x.in {
				if clientErr != nil || serverErr != nil || who.Node == "" {
					t.Fatalf("client %v, server %v, who %v", clientErr, serverErr, who)
				}
				return
			}
			if clientErr == nil || serverErr == nil {
				t.Fatalf("it is let in: client %v, server %v", clientErr, serverErr)
			}
			if all := clientErr.Error() + "; " + serverErr.Error(); !strings.Contains(all, x.want) {
				t.Errorf("%s, want %q", all, x.want)
			}
		})
	}
}

// clientUnchecked is the configuration of an intruder, who does not care whom it meets.
func (c *Credentials) clientUnchecked() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c.pair()}}
}

// TestIdentity: the subject of a certificate must be exactly one that the authority issues.
func TestIdentity(t *testing.T) {
	for text, want := range map[string]Identity{
		"mcastlab://host/abc1":      {Role: Host, Node: "abc1"},
		"mcastlab://deployer/x":     {Role: Deployer, Node: "x"},
		"mcastlab://share/x/lab-1":  {Role: Share, Node: "x", Lab: "lab-1"},
		"mcastlab://share/x":        {},
		"mcastlab://share/x/":       {},
		"mcastlab://share/x/lab/b":  {},
		"mcastlab://share/x/Lab":    {},
		"mcastlab://share//lab":     {},
		"mcastlab://deployer/x/":    {},
		"mcastlab://deployer/x/y":   {},
		"mcastlab://host/":          {},
		"mcastlab://host/a/b":       {},
		"mcastlab://host/A":         {},
		"mcastlab://root/a":         {},
		"mcastlab://host/a?x":       {},
		"mcastlab://u@host/a":       {},
		"mcastlab://host:1/a":       {},
		"https://host/a":            {},
		"mcastlab://host/%61":       {},
		"mcastlab:/host/a":          {},
		"mcastlab://deployer/a#sun": {},
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := identityOf(&x509.Certificate{URIs: []*url.URL{u}})
		if got != want && err == nil || (err == nil) != (want != Identity{}) {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	two := &url.URL{Scheme: scheme, Host: "host", Path: "/a"}
	if _, err := identityOf(&x509.Certificate{URIs: []*url.URL{two, two}}); err == nil {
		t.Error("a certificate with two identities is taken")
	}
	if _, err := identityOf(&x509.Certificate{}); err == nil {
		t.Error("a certificate without identity is taken")
	}
}

// TestSign: the authority decides what the bearer is, whatever the request says, and signs no request with a broken
// signature and no key of another kind.
func TestSign(t *testing.T) {
	a := authority(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	greedy, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		URIs: []*url.URL{Identity{Role: Deployer, Node: "m1"}.uri()}, DNSNames: []string{"example.org"},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := a.Sign(greedy, Identity{Role: Host, Node: "m1"}, noon)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCredentials(key, der, a.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	if c.Identity() != (Identity{Role: Host, Node: "m1"}) || len(c.cert.DNSNames) != 0 || c.cert.IsCA || !c.Ends().Equal(noon.Add(Valid)) {
		t.Errorf("%v, %v, CA %v, until %v", c.Identity(), c.cert.DNSNames, c.cert.IsCA, c.Ends())
	}
	broken := bytes.Clone(greedy)
	broken[len(broken)-1] ^= 1
	if _, err := a.Sign(broken, Identity{Role: Host, Node: "m1"}, noon); err == nil {
		t.Error("a request with a broken signature is signed")
	}
	big, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, big)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Sign(other, Identity{Role: Host, Node: "m1"}, noon); err == nil {
		t.Error("a key of P-384 is signed")
	}
	for _, id := range []Identity{{Role: Share, Node: "m1"}, {Role: Share, Node: "m1", Lab: "../lab"}, {Role: Deployer, Node: "m1", Lab: "lab"}, {Role: "root", Node: "m1"}} {
		if _, err := a.Sign(greedy, id, noon); err == nil {
			t.Errorf("a certificate of %s is signed", id)
		}
	}
	if _, err := a.Sign(greedy, Identity{Role: Host, Node: "../m1"}, noon); err == nil {
		t.Error("a node that is none gets a certificate")
	}
	late, err := a.Issue(Identity{Role: Host, Node: "m1"}, a.Ends().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if !late.Ends().Equal(a.Ends()) {
		t.Errorf("a certificate holds until %v, longer than its authority, %v", late.Ends(), a.Ends())
	}
}

// TestFiles: what is written is read again; a file cut off anywhere, or put together from two, is refused.
func TestFiles(t *testing.T) {
	a, b := authority(t), authority(t)
	c, d := issue(t, a, Host, "m1", noon), issue(t, b, Host, "m1", noon)
	file, err := a.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseAuthority(file)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Signed(again) || d.Signed(again) {
		t.Error("the authority read again is another")
	}
	own, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseCredentials(own)
	if err != nil {
		t.Fatal(err)
	}
	if back.Identity() != c.Identity() || !back.key.Equal(c.key) || !back.cert.Equal(c.cert) {
		t.Error("the credentials read again are others")
	}
	for n := range len(file) - 1 { // the last byte is a line's end
		if _, err := ParseAuthority(file[:n]); err == nil {
			t.Fatalf("an authority cut off after %d of %d bytes is read", n, len(file))
		}
	}
	for n := range len(own) - 1 {
		if _, err := ParseCredentials(own[:n]); err == nil {
			t.Fatalf("credentials cut off after %d of %d bytes are read", n, len(own))
		}
	}
	if _, err := ParseAuthority(own); err == nil {
		t.Error("a host's credentials are taken for an authority")
	}
	for name, mixed := range map[string][]any{
		"key": {d.key, c.cert.Raw, a.cert.Raw}, "authority": {c.key, c.cert.Raw, b.cert.Raw}, "order": {c.key, a.cert.Raw, c.cert.Raw},
	} {
		file, err := marshal(mixed[0], mixed[1].([]byte), mixed[2].([]byte))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseCredentials(file); err == nil {
			t.Errorf("credentials with another's %s are read", name)
		}
	}
}

// joining has a server with one token meet a deployer with one; what passes between them may be changed.
func joining(t *testing.T, deployer, machine Token, node string, apart time.Duration) (kept *Credentials, ahead time.Duration, deployerErr, machineErr error) {
	t.Helper()
	server, err := Stranger(fixed(noon))
	if err != nil {
		t.Fatal(err)
	}
	client, err := Stranger(fixed(noon))
	if err != nil {
		t.Fatal(err)
	}
	x, y := net.Pipe()
	done := make(chan error, 1)
	go func() {
		c := tls.Server(y, server)
		err := Join(c, machine, "m1", fixed(noon.Add(apart)), func(c *Credentials) error { kept = c; return nil })
		_ = y.Close()
		done <- err
	}()
	c := tls.Client(x, client)
	ahead, deployerErr = authority(t).Admit(c, deployer, node, time.Second, fixed(noon))
	_ = x.Close()
	return kept, ahead, deployerErr, <-done
}

// TestJoin: a server and a deployer that know the same token come together; those that do not, do not, and the server
// keeps nothing; nor does one whose clock is apart.
func TestJoin(t *testing.T) {
	token, other := draw(t), draw(t)
	kept, ahead, e1, e2 := joining(t, token, token, "m1", 10*time.Millisecond)
	if e1 != nil || e2 != nil || kept == nil || kept.Identity() != (Identity{Role: Host, Node: "m1"}) || ahead != 10*time.Millisecond {
		t.Errorf("%v, %v ahead, errors %v and %v", kept, ahead, e1, e2)
	}
	if kept, _, e1, e2 = joining(t, token, other, "m1", 0); kept != nil || e1 == nil || !errors.Is(e2, ErrNoToken) {
		t.Errorf("with two tokens: %v, %v, %v", kept, e1, e2)
	}
	if kept, _, e1, e2 = joining(t, token, token, "m2", 0); kept != nil || e1 == nil || !errors.Is(e2, ErrNoToken) {
		t.Errorf("with the proof for another server: %v, %v, %v", kept, e1, e2)
	}
	for _, apart := range []time.Duration{-2 * time.Second, 2 * time.Second} {
		if kept, ahead, e1, e2 = joining(t, token, token, "m1", apart); kept != nil || !errors.Is(e1, ErrClock) || e2 == nil || ahead != apart {
			t.Errorf("with clocks %v apart: %v, %v, %v, %v", apart, kept, ahead, e1, e2)
		}
	}
}

// TestJoinThroughAStranger: a man in the middle that speaks TLS with both can forward all messages, and gets neither
// to continue: the proofs are bound to the connections they came through.
func TestJoinThroughAStranger(t *testing.T) {
	token := draw(t)
	config := func() *tls.Config {
		c, err := Stranger(fixed(noon))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a1, a2 := net.Pipe() // deployer to stranger
	b1, b2 := net.Pipe() // stranger to server
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(a2.Close(), b1.Close()) })
	defer stop()
	ends := make(chan error, 2)
	var kept bool
	go func() {
		err := Join(tls.Server(b2, config()), token, "m1", fixed(noon), func(*Credentials) error { kept = true; return nil })
		_ = b2.Close()
		ends <- err
	}()
	go func() {
		in, out := tls.Server(a2, config()), tls.Client(b1, config())
		go func() { _, _ = io.Copy(in, out); _ = a2.Close() }()
		_, err := io.Copy(out, in)
		_ = b1.Close()
		ends <- err
	}()
	_, err := authority(t).Admit(tls.Client(a1, config()), token, "m1", time.Second, fixed(noon))
	_ = a1.Close()
	first, second := <-ends, <-ends
	if err == nil || kept || !errors.Is(first, ErrNoToken) && !errors.Is(second, ErrNoToken) {
		t.Errorf("deployer %v, server and stranger %v, %v, kept %v", err, first, second, kept)
	}
}

func draw(t *testing.T) Token {
	t.Helper()
	k, err := NewToken()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestToken: a token is read as it was written, with a line's end or without, and nothing shorter or longer is one.
func TestToken(t *testing.T) {
	k := draw(t)
	for _, text := range []string{k.String(), k.String() + "\n"} {
		if got, err := ParseToken([]byte(text)); err != nil || got != k {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", k.String()[1:], k.String() + "0", "x" + k.String()[1:]} {
		if _, err := ParseToken([]byte(text)); err == nil {
			t.Errorf("%q is a token", text)
		}
	}
}

// TestAdmitHostile: a server that does not know the token, or answers nonsense, or has a clock that is apart gets no certificate,
// whatever else it says; nor does the deployer take a server for joined that has not said so.
func TestAdmitHostile(t *testing.T) {
	token := draw(t)
	_, csr, err := NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		answer func(state *tls.ConnectionState) any
		signed bool // it gets a certificate
		want   error
	}{
		"no proof": {func(*tls.ConnectionState) any { return request{Request: csr, Now: noon.UnixNano()} }, false, ErrNoToken},
		"nonsense": {func(*tls.ConnectionState) any { return "hello" }, false, nil},
		"its proof back": {func(s *tls.ConnectionState) any {
			return request{proofFor(t, token, s, "deployer", "m1"), csr, noon.UnixNano()}
		}, false, ErrNoToken},
		"another node": {func(s *tls.ConnectionState) any {
			return request{proofFor(t, token, s, "host", "m2"), csr, noon.UnixNano()}
		}, false, ErrNoToken},
		"apart": {func(s *tls.ConnectionState) any {
			return request{proofFor(t, token, s, "host", "m1"), csr, noon.Add(time.Minute).UnixNano()}
		}, false, ErrClock},
		"no request": {func(s *tls.ConnectionState) any {
			return request{proofFor(t, token, s, "host", "m1"), nil, noon.UnixNano()}
		}, false, nil},
		"no thanks": {func(s *tls.ConnectionState) any {
			return request{proofFor(t, token, s, "host", "m1"), csr, noon.UnixNano()}
		}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := Stranger(fixed(noon))
			if err != nil {
				t.Fatal(err)
			}
			a, b := net.Pipe()
			got := make(chan bool, 1)
			go func() {
				defer b.Close()
				x2, state, err := begin(tls.Server(b, server))
				var h hello
				if err != nil || x2.reader.Decode(&h) != nil || x2.put(x.answer(state)) != nil {
					got <- false
					return
				}
				var s signed
				got <- x2.reader.Decode(&s) == nil && len(s.Certificate) > 0
			}()
			client, err := Stranger(fixed(noon))
			if err != nil {
				t.Fatal(err)
			}
			_, err = authority(t).Admit(tls.Client(a, client), token, "m1", time.Second, fixed(noon))
			_ = a.Close()
			if signed := <-got; err == nil || x.want != nil && !errors.Is(err, x.want) || signed != x.signed {
				t.Errorf("%v, signed %v", err, signed)
			}
		})
	}
}

func proofFor(t *testing.T, token Token, s *tls.ConnectionState, side, node string) []byte {
	t.Helper()
	p, err := token.proof(s, side, node)
	if err != nil {
		t.Error(err)
	}
	return p
}
