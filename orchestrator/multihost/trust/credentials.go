// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Credentials are a key, its certificate, and the authority that all others must have theirs from.
type Credentials struct {
	id        Identity
	key       *ecdsa.PrivateKey
	cert      *x509.Certificate
	authority *x509.Certificate
}

// NewCredentials puts credentials together and checks that they fit each other.
func NewCredentials(key *ecdsa.PrivateKey, cert, authority []byte) (*Credentials, error) {
	own, err := x509.ParseCertificate(cert)
	if err != nil {
		return nil, fmt.Errorf("read a certificate: %w", err)
	}
	root, err := x509.ParseCertificate(authority)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	return fit(key, own, root)
}

func fit(key *ecdsa.PrivateKey, own, root *x509.Certificate) (*Credentials, error) {
	id, err := identityOf(own)
	switch {
	case err != nil:
		return nil, err
	case !key.PublicKey.Equal(own.PublicKey):
		return nil, errors.New("the certificate is of another key")
	case own.CheckSignatureFrom(root) != nil:
		return nil, errors.New("the certificate is of another authority")
	}
	return &Credentials{id, key, own, root}, nil
}

// Identity returns whom the credentials speak for.
func (c *Credentials) Identity() Identity { return c.id }

// Ends returns the end of the certificate.
func (c *Credentials) Ends() time.Time { return c.cert.NotAfter }

// Signed reports whether they are of an authority.
func (c *Credentials) Signed(a *Authority) bool { return c.authority.Equal(a.cert) }

// Marshal returns the credentials as the content of one file, so that nobody ever sees a key beside another's certificate.
func (c *Credentials) Marshal() ([]byte, error) { return marshal(c.key, c.cert.Raw, c.authority.Raw) }

// ParseCredentials is the reverse of Marshal.
func ParseCredentials(file []byte) (*Credentials, error) {
	key, certs, err := unmarshal(file)
	if err == nil && len(certs) != 2 {
		err = fmt.Errorf("%d certificates, and not two", len(certs))
	}
	var c *Credentials
	if err == nil {
		c, err = fit(key, certs[0], certs[1])
	}
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	return c, nil
}

func (c *Credentials) pair() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{c.cert.Raw}, PrivateKey: c.key, Leaf: c.cert}
}

// verify checks a peer's certificate for a use, and returns whose it is.
func (c *Credentials) verify(peers []*x509.Certificate, use x509.ExtKeyUsage, now time.Time) (Identity, error) {
	if len(peers) == 0 {
		return Identity{}, errors.New("the peer has no certificate")
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.authority)
	if _, err := peers[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{use}, CurrentTime: now}); err != nil {
		return Identity{}, err
	}
	return identityOf(peers[0])
}

// Server returns the configuration of a port that takes nobody without a certificate of the same authority.
// What its role may ask is for the caller to decide, by Peer.
func (c *Credentials) Server(clock func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c.pair()}, Time: clock,
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true, // a certificate is looked at in every connection
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := c.verify(s.PeerCertificates, x509.ExtKeyUsageClientAuth, clock())
			return err
		},
	}
}

// Client returns the configuration of connections to the daemon of one node, and to nobody else.
func (c *Credentials) Client(node string, clock func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c.pair()}, Time: clock,
		InsecureSkipVerify: true, // of names, which the certificates do not have; VerifyConnection checks everything
		VerifyConnection: func(s tls.ConnectionState) error {
			id, err := c.verify(s.PeerCertificates, x509.ExtKeyUsageServerAuth, clock())
			if err == nil && id != (Identity{Role: Host, Node: node}) {
				err = fmt.Errorf("it is %s, and not the host %s", id, node)
			}
			return err
		},
	}
}

// Peer returns who is at the other end of a connection that a Server's configuration has let in.
func Peer(s *tls.ConnectionState) (Identity, error) {
	if s == nil || len(s.PeerCertificates) == 0 {
		return Identity{}, errors.New("the peer has no certificate")
	}
	return identityOf(s.PeerCertificates[0])
}
