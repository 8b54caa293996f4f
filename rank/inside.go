// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Programs see these constants as plain numbers. A line does not compile if its constant
// differs from that of the core.
var (
	_ = [1]struct{}{}[QueueDepth-virtrnic.MaxQPWR]
	_ = [1]struct{}{}[DatagramHeader-virtrnic.GRHLen]
	_ = [1]struct{}{}[ReduceWindow-wire.ReduceWindow]
)

// Runtimes and built-in algorithms call the exported methods of these types beside the public API. The
// types are separate so that programs do not see the methods. Package rank/rankrun has their
// interfaces.
type (
	inside       struct{ *Rank }
	insideGroup  struct{ *Group }
	insideConn   struct{ *Conn }
	insideBuffer struct{ *Buffer }
)

func init() {
	rankhost.Hooks.Start = func(c rankhost.Config) (any, error) { return start(c) }
	rankhost.Hooks.Run = run
	rankhost.Hooks.Inside = func(x any) any {
		switch x := x.(type) {
		case *Rank:
			return inside{x}
		case *Group:
			return insideGroup{x}
		case *Conn:
			return insideConn{x}
		default:
			return insideBuffer{x.(*Buffer)}
		}
	}
}
