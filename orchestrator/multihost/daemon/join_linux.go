// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// JoinOptions are the settings of a server that waits for its certificate.
type JoinOptions struct {
	Node   string   // the ID of the Swarm's node that it is
	Nodes  []string // those that are to get one
	Dir    string   // for the credentials
	Listen string   // address and port
	Token  string   // the file that holds the token
	Clock  func() time.Time
	// listening, if not nil, gets the address, in tests.
	listening func(address string)
}

// joinMax is the time limit of a server for the deployer to call, and callersMax the number of callers at once.
const (
	joinMax    = 2 * time.Minute
	callersMax = 32
)

// Join waits for the deployer, and ends when the server has its certificate: a token serves once.
func Join(ctx context.Context, o JoinOptions) error {
	if !slices.Contains(o.Nodes, o.Node) {
		return nil
	}
	text, err := os.ReadFile(o.Token)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	token, err := trust.ParseToken(text)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	config, err := trust.Stranger(o.Clock)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, joinMax)
	defer cancel()
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if o.listening != nil {
		o.listening(l.Addr().String())
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	j := &joining{o: o, token: token, config: config, cancel: cancel}
	var callers sync.WaitGroup
	gate := make(chan struct{}, callersMax)
	for {
		conn, err := l.Accept()
		if err != nil {
			break
		}
		callers.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			j.serve(ctx, conn)
		})
	}
	callers.Wait()
	if !j.joined {
		return fmt.Errorf("join: nobody who knows the join token has called in %v", joinMax)
	}
	return nil
}

type joining struct {
	o      JoinOptions
	token  trust.Token
	config *tls.Config
	cancel func()
	mu     sync.Mutex
	joined bool
}

// serve lets one caller try.
func (j *joining) serve(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	// A caller without the token changes nothing.
	if err := trust.Join(tls.Server(conn, j.config), j.token, j.o.Node, j.o.Clock, j.keep); err == nil {
		j.cancel()
	}
	_ = conn.Close()
}

func (j *joining) keep(c *trust.Credentials) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.joined {
		return errors.New("the join token has been used")
	}
	if err := Keep(j.o.Dir, c); err != nil {
		return err
	}
	j.joined = true
	return nil
}
