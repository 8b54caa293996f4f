// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

// The parts of Deployed: each has the operations of one subject on a lab that runs or starts, and sees all of the lab.
type (
	deployment        struct{ *Deployed } // brings it up, and takes it down
	wiring            struct{ *Deployed } // makes its links
	managementNetwork struct{ *Deployed } // links its hosts beside the fabric
	externalHosts     struct{ *Deployed } // knows the devices that are hosts of it
	controllerSetup   struct{ *Deployed } // starts its controllers
	agentCalls        struct{ *Deployed } // calls the agents of its nodes
	leftoverSearch    struct{ *Deployed } // finds and removes what runs have left on its nodes
)

func deploymentOf(d *Deployed) deployment               { return deployment{d} }
func wiringOf(d *Deployed) wiring                       { return wiring{d} }
func managementNetworkOf(d *Deployed) managementNetwork { return managementNetwork{d} }
func externalHostsOf(d *Deployed) externalHosts         { return externalHosts{d} }
func controllerSetupOf(d *Deployed) controllerSetup     { return controllerSetup{d} }
func agentCallsOf(d *Deployed) agentCalls               { return agentCalls{d} }
func leftoverSearchOf(d *Deployed) leftoverSearch       { return leftoverSearch{d} }
