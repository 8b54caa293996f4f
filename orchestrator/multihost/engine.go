// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package multihost spreads a lab over several servers. The deployer places the nodes, has each server make its share through
// the local engine, and reaches nodes and controllers through the processes of the shares (ServeShare), which decide nothing.
package multihost

import (
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Engine is an engine of several servers, with the testbed that makes labs there.
type Engine struct{ engine.Spread }

// Testbed returns the testbed of a lab.
func (e Engine) Testbed(d *orchestrator.Deployed) orchestrator.Testbed {
	return &testbed{Deployed: d, servers: e.Spread}
}
