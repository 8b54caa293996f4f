// SPDX-License-Identifier: Apache-2.0

// Package trust controls access to the servers that hold labs together: an authority whose key
// stays where `mcastlab servers up` ran, certificates with one of three roles, TLS that accepts
// nothing else, and the proof by which a server gets its first certificate.
package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Role selects the rights of the bearer of a certificate.
type Role string

// Roles. A deployer is root on every server in effect: a daemon makes containers for it.
// A host may ask another host for the time, and for probes between the two. A share is what a server has
// of one lab: it may reach the nodes and controllers that other servers have of the same lab.
const (
	Deployer Role = "deployer"
	Host     Role = "host"
	Share    Role = "share"
)

// Identity is the subject of a certificate: a role, at a node of the Swarm by its ID.
type Identity struct {
	Role Role
	Node string
	Lab  string // of a share, and of nobody else
}

// scheme of the URI that a certificate carries in place of a name.
const scheme = "mcastlab"

// String returns the role and the node, and the lab if it is of one.
func (i Identity) String() string {
	if i.Lab != "" {
		return fmt.Sprintf("%s %s of lab %s", i.Role, i.Node, i.Lab)
	}
	return fmt.Sprintf("%s %s", i.Role, i.Node)
}

func (i Identity) uri() *url.URL {
	path := "/" + i.Node
	if i.Lab != "" {
		path += "/" + i.Lab
	}
	return &url.URL{Scheme: scheme, Host: string(i.Role), Path: path}
}

// check returns an error unless there can be such a bearer of a certificate.
func (i Identity) check() error {
	switch {
	case i.Role != Deployer && i.Role != Host && i.Role != Share:
		return fmt.Errorf("%q is no role", i.Role)
	case !NodeOK(i.Node):
		return fmt.Errorf("%q is no ID of a node", i.Node)
	case i.Role == Share && !LabOK(i.Lab):
		return fmt.Errorf("%q cannot be the name of a lab", i.Lab)
	case i.Role != Share && i.Lab != "":
		return fmt.Errorf("a %s is not of one lab", i.Role)
	}
	return nil
}

// labName matches the valid names of labs (lab.NameOK): they become part of paths.
var labName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// LabOK reports whether a text can be the name of a lab.
func LabOK(lab string) bool { return labName.MatchString(lab) }

// NodeOK reports whether a text can be the ID of a node of a Swarm: up to 64 lower-case letters and digits.
func NodeOK(node string) bool {
	return node != "" && len(node) <= 64 && strings.Trim(node, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// identityOf reads the identity of a certificate, which has one URI and is for nothing else.
func identityOf(c *x509.Certificate) (Identity, error) {
	if len(c.URIs) != 1 || c.URIs[0].Scheme != scheme {
		return Identity{}, errors.New("the certificate names no role")
	}
	i := Identity{Role: Role(c.URIs[0].Host)}
	i.Node, i.Lab, _ = strings.Cut(strings.TrimPrefix(c.URIs[0].Path, "/"), "/")
	if i.check() != nil || c.URIs[0].String() != i.uri().String() {
		return Identity{}, fmt.Errorf("the certificate is of %q, which is no role", c.URIs[0])
	}
	return i, nil
}

// Times of certificates.
const (
	authorityValid = 5 * 365 * 24 * time.Hour
	// Valid is the lifetime of the certificate of a server or deployer, and Renew the time before its
	// end at which `servers up` makes another.
	Valid = 90 * 24 * time.Hour
	Renew = 30 * 24 * time.Hour
	// backdated is the time between the start of a certificate's validity and its making: an offset of
	// two clocks below this shows as an offset, and not as a failure of TLS.
	backdated = time.Hour
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority with a key of its own.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("mcastlab servers %x", serial.Bytes()[:4])},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(authorityValid),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}, &x509.Certificate{Subject: pkix.Name{CommonName: fmt.Sprintf("mcastlab servers %x", serial.Bytes()[:4])}}, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	return &Authority{cert, key}, nil
}

// newSerial draws the number of a certificate, 127 bits without leading zero bytes.
func newSerial() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	b[0] = b[0]&0x7f | 0x40
	return new(big.Int).SetBytes(b), nil
}

// Sign makes the certificate that a signing request asks for. Of the request only the key counts:
// what the bearer is, the authority says.
func (a *Authority) Sign(request []byte, id Identity, now time.Time) ([]byte, error) {
	r, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("sign a certificate of %s: %w", id, err)
	}
	if key, ok := r.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("sign a certificate of %s: its key is not one of P-256", id)
	}
	if err := id.check(); err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if id.Role == Host {
		usage = append(usage, x509.ExtKeyUsageServerAuth)
	}
	end := now.Add(Valid)
	if a.cert.NotAfter.Before(end) {
		end = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, URIs: []*url.URL{id.uri()}, NotBefore: now.Add(-backdated), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usage, BasicConstraintsValid: true,
	}, a.cert, r.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate of %s: %w", id, err)
	}
	return der, nil
}

// Certificate returns the authority's own certificate.
func (a *Authority) Certificate() []byte { return a.cert.Raw }

// Ends returns the end of the authority's certificate.
func (a *Authority) Ends() time.Time { return a.cert.NotAfter }

// Issue makes a key and a certificate where the authority is.
func (a *Authority) Issue(id Identity, now time.Time) (*Credentials, error) {
	key, request, err := NewRequest()
	if err != nil {
		return nil, err
	}
	der, err := a.Sign(request, id, now)
	if err != nil {
		return nil, err
	}
	return NewCredentials(key, der, a.Certificate())
}

// NewRequest makes the key of a server, and the request to sign a certificate for it.
func NewRequest() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("request a certificate: %w", err)
	}
	return key, request, nil
}

// Kinds of PEM blocks in our files.
const (
	pemKey  = "PRIVATE KEY"
	pemCert = "CERTIFICATE"
)

// Marshal returns the authority as the content of a file: its key and certificate.
func (a *Authority) Marshal() ([]byte, error) { return marshal(a.key, a.cert.Raw) }

// ParseAuthority is the reverse of Marshal.
func ParseAuthority(file []byte) (*Authority, error) {
	key, certs, err := unmarshal(file)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the authority: %w", err)
	case len(certs) != 1 || !certs[0].IsCA || !key.PublicKey.Equal(certs[0].PublicKey):
		return nil, errors.New("read the authority: the key is not that of the certificate")
	}
	return &Authority{certs[0], key}, nil
}

func marshal(key crypto.PrivateKey, certs ...[]byte) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	file := pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der})
	for _, c := range certs {
		file = append(file, pem.EncodeToMemory(&pem.Block{Type: pemCert, Bytes: c})...)
	}
	return file, nil
}

func unmarshal(file []byte) (key *ecdsa.PrivateKey, certs []*x509.Certificate, err error) {
	block, rest := pem.Decode(file)
	if block == nil || block.Type != pemKey {
		return nil, nil, errors.New("it does not begin with a key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("its key is a %T", parsed)
	}
	for {
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != pemCert {
			return nil, nil, errors.Join(fmt.Errorf("a %s is no certificate", block.Type), err)
		}
		certs = append(certs, c)
	}
	if len(strings.TrimSpace(string(rest))) > 0 {
		return nil, nil, errors.New("it ends in the middle of a certificate")
	}
	return key, certs, nil
}
