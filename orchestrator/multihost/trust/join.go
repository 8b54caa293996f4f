// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Token is the secret that a server and the deployer share when the server gets its first certificate: the
// Swarm delivers it, and it is useless afterwards.
type Token [32]byte

// NewToken draws one.
func NewToken() (t Token, err error) {
	if _, err = rand.Read(t[:]); err != nil {
		return t, fmt.Errorf("draw a join token: %w", err)
	}
	return t, nil
}

// String returns the token as its secret holds it.
func (t Token) String() string { return hex.EncodeToString(t[:]) }

// ParseToken is the reverse of String.
func ParseToken(text []byte) (t Token, err error) {
	b, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(b) != len(t) {
		return t, errors.New("read the join token: it is not 64 hexadecimal digits")
	}
	return Token(b), nil
}

// exporter is the label of the key that both ends of a TLS connection derive, and nobody between them does (RFC 8446, 7.5).
const exporter = "EXPORTER-mcastlab-join"

// proof shows that one side of a connection knows the token, in that connection alone: a proof that is passed on to
// another connection is none there, so that nobody can sit between the two.
func (t Token) proof(s *tls.ConnectionState, side, node string) ([]byte, error) {
	bound, err := s.ExportKeyingMaterial(exporter, nil, 32)
	if err != nil {
		return nil, fmt.Errorf("prove knowledge of the join token: %w", err)
	}
	m := hmac.New(sha256.New, t[:])
	for _, part := range [][]byte{bound, []byte(side), []byte(node)} {
		m.Write([]byte{byte(len(part))})
		m.Write(part)
	}
	return m.Sum(nil), nil
}

// Messages of the join, one JSON object a line: the deployer's hello, the server's request, the certificate, the server's thanks.
type (
	hello struct {
		Proof []byte `json:"proof"`
	}
	request struct {
		Proof   []byte `json:"proof"`
		Request []byte `json:"request"`
		Now     int64  `json:"now"` // of the server's clock, in ns since 1970
	}
	signed struct {
		Certificate []byte `json:"certificate"`
		Authority   []byte `json:"authority"`
	}
	thanks struct {
		Kept bool `json:"kept"`
	}
)

// messageMax bounds the messages of a join, in bytes.
const messageMax = 16 << 10

// joinWait bounds a join in all.
const joinWait = 10 * time.Second

// ErrNoToken says that the other side of a join does not know the token.
var ErrNoToken = errors.New("the other side does not know the join token")

// exchange is one side's view of the connection of a join.
type exchange struct {
	conn   *tls.Conn
	reader *json.Decoder
}

// begin completes the handshake of TLS. Both certificates are strangers': the proofs make up for it.
func begin(conn *tls.Conn) (*exchange, *tls.ConnectionState, error) {
	if err := conn.SetDeadline(time.Now().Add(joinWait)); err != nil {
		return nil, nil, err
	}
	if err := conn.Handshake(); err != nil {
		return nil, nil, err
	}
	s := conn.ConnectionState()
	return &exchange{conn, json.NewDecoder(io.LimitReader(conn, 2*messageMax))}, &s, nil
}

func (x *exchange) put(v any) error { return json.NewEncoder(x.conn).Encode(v) }

// Admit is the deployer's side of a join: it signs the key of the server at the other end, and returns how far that
// server's clock is ahead. A server whose clock is more than apart away gets no certificate, which it could not use.
func (a *Authority) Admit(conn *tls.Conn, token Token, node string, apart time.Duration, clock func() time.Time) (ahead time.Duration, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("join: %w", err)
		}
	}()
	x, state, err := begin(conn)
	if err != nil {
		return 0, err
	}
	own, err := token.proof(state, "deployer", node)
	if err != nil {
		return 0, err
	}
	before := clock()
	if err := x.put(hello{own}); err != nil {
		return 0, err
	}
	var r request
	if err := x.reader.Decode(&r); err != nil {
		return 0, fmt.Errorf("no answer: %w", err)
	}
	after := clock()
	theirs, err := token.proof(state, "host", node)
	if err != nil {
		return 0, err
	}
	if !hmac.Equal(theirs, r.Proof) {
		return 0, ErrNoToken
	}
	if ahead = Ahead(before, after, r.Now); ahead.Abs() > apart {
		return ahead, ErrClock
	}
	der, err := a.Sign(r.Request, Identity{Role: Host, Node: node}, after)
	if err != nil {
		return ahead, err
	}
	if err := x.put(signed{der, a.Certificate()}); err != nil {
		return ahead, err
	}
	var last thanks
	if err := x.reader.Decode(&last); err != nil || !last.Kept {
		return ahead, errors.Join(errors.New("the server has not kept its certificate"), err)
	}
	return ahead, nil
}

// ErrClock says that two clocks are further apart than they may be.
var ErrClock = errors.New("the clocks are apart")

// Ahead returns by how much a clock is ahead that said now, in ns since 1970, between two readings of this one's. What the
// way there and the way back differ by is an error of up to half of the time between.
func Ahead(before, after time.Time, now int64) time.Duration {
	middle := before.Add(after.Sub(before) / 2)
	return time.Duration(now - middle.UnixNano())
}

// Join is the server's side: it makes a key, has it signed by the party that knows the token, and passes the credentials to
// keep.
func Join(conn *tls.Conn, token Token, node string, clock func() time.Time, keep func(*Credentials) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("join: %w", err)
		}
	}()
	x, state, err := begin(conn)
	if err != nil {
		return err
	}
	var h hello
	if err := x.reader.Decode(&h); err != nil {
		return err
	}
	theirs, err := token.proof(state, "deployer", node)
	if err != nil {
		return err
	}
	if !hmac.Equal(theirs, h.Proof) {
		return ErrNoToken
	}
	own, err := token.proof(state, "host", node)
	if err != nil {
		return err
	}
	key, csr, err := NewRequest()
	if err != nil {
		return err
	}
	if err := x.put(request{own, csr, clock().UnixNano()}); err != nil {
		return err
	}
	c, err := x.credentials(key, node)
	if err == nil {
		err = keep(c)
	}
	if err != nil {
		return err
	}
	return x.put(thanks{true})
}

// credentials reads the deployer's answer.
func (x *exchange) credentials(key *ecdsa.PrivateKey, node string) (*Credentials, error) {
	var s signed
	if err := x.reader.Decode(&s); err != nil {
		return nil, err
	}
	c, err := NewCredentials(key, s.Certificate, s.Authority)
	if err == nil && c.Identity() != (Identity{Role: Host, Node: node}) {
		err = fmt.Errorf("the certificate is of %s", c.Identity())
	}
	return c, err
}

// Stranger returns a configuration of TLS for both sides of a join, with a key of the moment.
func Stranger(clock func() time.Time) (*tls.Config, error) {
	a, err := NewAuthority(clock())
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: clock, InsecureSkipVerify: true, // the proofs take the place of certificates
		Certificates: []tls.Certificate{{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key}},
	}, nil
}
