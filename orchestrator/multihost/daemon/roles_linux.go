// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// Streams to the process of a share, as methods in roles.
const (
	shareStream = "/share"
	peersStream = "/peers"
)

// roles are the roles that may call a method or open a stream. Only deployers may change a server or read its detailed state.
// A method that is not here is refused to all.
func roles() map[string][]trust.Role {
	return map[string][]trust.Role{
		Daemon_Status_FullMethodName:   {trust.Deployer},
		Daemon_Probe_FullMethodName:    {trust.Deployer},
		Daemon_Clock_FullMethodName:    {trust.Deployer, trust.Host},
		Daemon_Expect_FullMethodName:   {trust.Host},
		Daemon_Arrived_FullMethodName:  {trust.Host},
		Daemon_StartLab_FullMethodName: {trust.Deployer},
		Daemon_EndLab_FullMethodName:   {trust.Deployer},
		Daemon_ListLabs_FullMethodName: {trust.Deployer},
		shareStream:                    {trust.Deployer},
		peersStream:                    {trust.Share},
	}
}

// allowed returns an error unless the bearer of a certificate may call a method, for a lab if that has one. The error has no more than that.
func allowed(who trust.Identity, method, lab string) error {
	if !slices.Contains(roles()[method], who.Role) || who.Lab != "" && who.Lab != lab {
		return fmt.Errorf("%s may not call %s", who, path.Base(method))
	}
	return nil
}

// guarded lets a call through if its caller may make it, and bounds its time.
func guarded(ctx context.Context, q any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	lab := ""
	if x, ok := q.(interface{ GetLab() string }); ok {
		lab = x.GetLab()
	}
	who, err := caller(ctx)
	if err == nil {
		err = allowed(who, info.FullMethod, lab)
	}
	if err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	ctx, stop := context.WithTimeout(ctx, requestWait)
	defer stop()
	a, err := h(ctx, q)
	if err != nil {
		err = status.Error(codes.Unknown, err.Error()) // not that of a call to another daemon
	}
	return a, err
}

// caller returns the identity of the certificate with which a call comes.
func caller(ctx context.Context) (trust.Identity, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return trust.Peer(&info.State)
		}
	}
	return trust.Peer(nil)
}

// shaken are the credentials of connections whose TLS handshake is over when gRPC gets them.
type shaken struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (shaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, ok := c.(*accepted)
	if !ok {
		return nil, nil, fmt.Errorf("a connection without TLS: %T", c)
	}
	return c, credentials.TLSInfo{
		State: t.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// Info implements credentials.TransportCredentials.
func (shaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (s shaken) Clone() credentials.TransportCredentials { return s }
