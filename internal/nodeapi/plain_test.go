// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// torn is a node whose calls fail, with errors that have been joined on the way.
type torn struct{ UnimplementedNodeServer }

func (torn) Lockstep(Node_LockstepServer) error {
	return errors.Join(status.Error(codes.Aborted, "h0:0 announced frame 0"), nil)
}

func (torn) Turn(context.Context, *InspectRequest) (*TurnReply, error) {
	return nil, errors.Join(status.Error(codes.FailedPrecondition, status.Error(codes.Aborted, "the node is not configured").Error()), nil)
}

// TestPlain: errors of calls and streams have the reason and no text of gRPC, and keep their code; the end of a stream stays io.EOF.
func TestPlain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	RegisterNodeServer(s, torn{})
	go func() { _ = s.Serve(l) }() // it ends with Stop
	defer s.Stop()
	conn, err := grpc.NewClient("unix:"+path, append(Plain(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // it has done its work
	c := NewNodeClient(conn)
	if _, err := c.Turn(t.Context(), &InspectRequest{}); err == nil || err.Error() != "the node is not configured" || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("call: %v", err)
	}
	stream, err := c.Lockstep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil || err.Error() != "h0:0 announced frame 0" || status.Code(err) != codes.Aborted {
		t.Errorf("stream: %v", err)
	}
	if !errors.Is(plain(io.EOF), io.EOF) || plain(nil) != nil {
		t.Error("the end of a stream is an error of gRPC")
	}
	if strings.Contains(plain(context.Canceled).Error(), "rpc") {
		t.Error("an error that is none of gRPC has become one")
	}
}

// TestPlainEverywhere: no connection of the program is without.
func TestPlainEverywhere(t *testing.T) {
	dials := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if n := strings.Count(string(b), "grpc.NewClient("); n > 0 {
			if dials += n; !strings.Contains(string(b), "nodeapi.Plain()") {
				t.Errorf("%s: a connection whose errors are gRPC's: use nodeapi.Plain", path)
			}
		}
		return err
	})
	if err != nil || dials < 4 {
		t.Errorf("%d connections, %v", dials, err)
	}
}
