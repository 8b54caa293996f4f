package orchestrator

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/mcastlab/mcastlab/counters"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mcastlab/mcastlab/control"
	"github.com/mcastlab/mcastlab/live"
)

// client is the connection to a node's agent.
type client struct {
	name string
	conn *grpc.ClientConn
	control.NodeClient
}

// messageMax bounds one message in either direction.
const messageMax = 16 << 20

// connect reaches the agents of all nodes.
func (d *Deployed) connect(ctx context.Context) error {
	return d.each(func(i int) error {
		name := d.Graph.Nodes[i].Name
		socket := filepath.Join(d.store.nodePath(name), control.AgentSocket)
		if err := d.listens(ctx, i); err != nil {
			return err
		}
		// The socket's folder is what protects it: only root and the node's user get in.
		conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax), grpc.MaxCallSendMsgSize(messageMax)))
		if err != nil {
			return fmt.Errorf("reach node %s: %w", name, err)
		}
		d.nodes[i] = &client{name, conn, control.NewNodeClient(conn)}
		return nil
	})
}

// restDilation is how slow the clock of a lab runs that nothing else is said of.
const restDilation = 1000

// configure makes every node what the lab file says it is, with a clock that starts now.
func (d *Deployed) configure(ctx context.Context) error {
	m, err := live.NewMonotonic()
	if err != nil {
		return err
	}
	r := live.Rate{Mono: m.Now(), Dilation: float64(d.Lab.Runtime.Dilation)}
	if r.Dilation == 0 {
		r.Dilation = restDilation
	}
	text := d.Lab.Resolved()
	return d.each(func(i int) error {
		c := d.nodes[i]
		if _, err := c.Configure(ctx, &control.ConfigureRequest{Node: c.name, Lab: text, Rate: message(r)}); err != nil {
			return fmt.Errorf("configure node %s: %w", c.name, err)
		}
		return nil
	})
}

// States returns what all nodes tell of themselves, in node order.
func (d *Deployed) States(ctx context.Context) ([]counters.Node, error) {
	all := make([]counters.Node, len(d.nodes))
	err := d.each(func(i int) error {
		r, err := d.nodes[i].Inspect(ctx, &control.InspectRequest{})
		if err != nil {
			return fmt.Errorf("inspect node %s: %w", d.nodes[i].name, err)
		}
		all[i], err = r.Decode()
		return err
	})
	return all, err
}

// Logs returns what a node has written.
func (d *Deployed) Logs(ctx context.Context, node string) ([]byte, error) {
	if _, ok := d.Graph.Find(node); !ok {
		return nil, fmt.Errorf("lab %s has no node %s", d.Lab.Name, node)
	}
	return d.o.Engine.Logs(ctx, d.Lab.Name, node)
}

// lastLine returns the last line of a log.
func lastLine(log []byte) string {
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return string(lines[len(lines)-1])
}
