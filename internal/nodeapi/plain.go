// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"regexp"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Plain returns the options of a connection whose errors people read: they have no "rpc error: code = Aborted desc = " before the reason, which
// means nothing to the user of a lab, and which each server on the way that joins errors repeats. Their gRPC status is as it was.
func Plain() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, o ...grpc.CallOption,
		) error {
			return plain(invoke(ctx, method, req, reply, cc, o...))
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			stream grpc.Streamer, o ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			s, err := stream(ctx, desc, cc, method, o...)
			if err != nil {
				return nil, plain(err)
			}
			return plainStream{s}, nil
		}),
	}
}

type plainStream struct{ grpc.ClientStream }

func (s plainStream) RecvMsg(m any) error { return plain(s.ClientStream.RecvMsg(m)) }

func (s plainStream) SendMsg(m any) error { return plain(s.ClientStream.SendMsg(m)) }

// plainError is an error of gRPC in plain words.
type plainError struct{ s *status.Status }

func (e plainError) Error() string { return prefix.ReplaceAllString(e.s.Message(), "") }

// GRPCStatus is for package status.
func (e plainError) GRPCStatus() *status.Status { return e.s }

var prefix = regexp.MustCompile(`rpc error: code = \w+ desc = `)

func plain(err error) error {
	if s, is := status.FromError(err); is && s != nil {
		return plainError{s}
	}
	return err
}
