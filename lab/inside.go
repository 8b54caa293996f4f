// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab/labhook"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// inside has the calls on a lab that both the checks of a lab file and the runtimes need. Runtimes
// reach it through package lab/labspec, which has the interface. Its methods are exported and it is
// not, so that users of this package do not see the types of cores in them.
type inside struct{ l *Lab }

func init() {
	labhook.Inside = func(l any) any { return inside{l.(*Lab)} }
}

func (i inside) Graph() (*topo.Graph, error) { return i.l.graph() }

// Check verifies a lab that came in a message.
func (i inside) Check() error { return i.l.verify() }

func (i inside) Fabric(g *topo.Graph) fabric.Spec { return i.l.fabric(g) }

func (i inside) Fault(g *topo.Graph, f *Fault, id string) (faults.Spec, error) {
	return f.spec(i.l, g, id)
}

func (i inside) Peer(x *External) *rankhost.Peer { return x.peer() }

func (i inside) LowClass() (dscp uint8, ok bool) { return i.l.lowClass() }
