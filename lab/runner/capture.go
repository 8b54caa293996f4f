// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/traces"
)

// MatchPorts returns the ports whose names match any of the patterns, in node order.
func MatchPorts(g *topo.Graph, patterns []string) (ends []topo.End, err error) {
	found := make([]bool, len(patterns))
	for node := range g.Nodes {
		for port := range g.Nodes[node].Links {
			e := topo.End{Node: node, Port: port}
			hit := false
			for i, p := range patterns {
				ok, err := path.Match(p, g.PortName(e))
				if err != nil {
					return nil, fmt.Errorf("capture %q: %w", p, err)
				}
				found[i], hit = found[i] || ok, hit || ok
			}
			if hit {
				ends = append(ends, e)
			}
		}
	}
	for i, ok := range found {
		if !ok {
			return nil, fmt.Errorf("capture %q: no port has that name: ports are NODE:NUMBER, such as %s", patterns[i], g.PortName(topo.End{}))
		}
	}
	return ends, nil
}

// Captures are the capture files of a run, one for each captured port. The zero value has none.
type Captures struct {
	budget traces.Budget
	files  []captureFile
}

type captureFile struct {
	name string
	f    *os.File
	buf  *bufio.Writer
	c    *traces.Capture
}

// Open makes a file for each port, NODE_PORT.pcapng, in a folder. All of them together take as many
// bytes as are given; 0 means CaptureBytesDefault. n has the links of the lab.
func (k *Captures) Open(n *sim.Net, folder *Folder, ends []topo.End, bytes int64) error {
	if k.budget.Left = bytes; bytes == 0 {
		k.budget.Left = CaptureBytesDefault
	}
	slack := vtime.Duration(0)
	for id := range n.Ports() {
		slack = max(slack, n.Delay(id))
	}
	for _, e := range ends {
		port := n.Graph().PortName(e)
		name := strings.ReplaceAll(port, ":", "_") + ".pcapng"
		f, err := folder.Create(name)
		if err != nil {
			return fmt.Errorf("capture %s: %w", port, err)
		}
		buf := bufio.NewWriter(f)
		c, err := traces.NewCapture(buf, port, slack, &k.budget)
		k.files = append(k.files, captureFile{filepath.Join(folder.Path(), name), f, buf, c})
		if err != nil {
			return err
		}
	}
	return nil
}

// Frame adds a frame to file i: one that passed the port at an instant, as is known now.
func (k *Captures) Frame(i int, now, at vtime.Time, f *wire.Frame) { k.files[i].c.Frame(now, at, f) }

// Bytes does the same with the bytes of a frame without FCS.
func (k *Captures) Bytes(i int, now, at vtime.Time, b []byte) { k.files[i].c.Bytes(now, at, b) }

// Cut returns the number of frames that no longer fitted.
func (k *Captures) Cut() uint64 { return k.budget.Cut }

// Files returns the number of files.
func (k *Captures) Files() int { return len(k.files) }

// Close writes buffered frames. The capture up to then is complete.
func (k *Captures) Close() error {
	var errs []error
	for _, x := range k.files {
		if x.c != nil {
			errs = append(errs, x.c.Close())
		}
		if err := errors.Join(x.buf.Flush(), x.f.Close()); err != nil {
			errs = append(errs, fmt.Errorf("write capture %s: %w", x.name, err))
		}
	}
	return errors.Join(errs...)
}
