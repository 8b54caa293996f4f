// SPDX-License-Identifier: Apache-2.0

package simlab

// LabFaults returns a fault of every kind that simulations have, as a lab file says it, for a lab of two
// leaves, a spine, and two hosts at each leaf. Some of them keep ranks waiting for ever.
func LabFaults() []string {
	return []string{
		"{at: 20us, for: 300us, loss: {links: leaf*-spine*, rate: 0.05}}",
		"{at: 20us, corrupt: {links: h*-leaf*, rate: 0.02}}",
		"{at: 20us, truncate: {links: h*-leaf*, rate: 0.02}}",
		"{duplicate: {links: leaf*-spine*, rate: 0.1}}",
		"{reorder: {links: leaf*-spine*, rate: 0.1, delay: 3us}}",
		"{at: 10us, for: 100us, every: 300us, delay: {links: leaf*-spine*, delay: 5us, jitter: 2us}}",
		"{at: 10us, for: 200us, every: 300us, rate-cut: {links: leaf*-spine*, rate: 10Gbps}}",
		"{at: 30us, for: 20us, every: 400us, link-down: {links: leaf1-spine0}}",
		"{at: 30us, for: 60us, every: 200us, pause: {node: h3}}",
		"{at: 30us, pause: {node: h3}}",
		"{at: 30us, pause-storm: {node: h1, gap: 400us}}",
		"{at: 60us, crash: {nodes: h2}}",
		"{at: 60us, for: 2ms, agent-crash: {nodes: leaf1}}",
		"{at: 60us, every: 900us, restart: {nodes: spine0}}",
		"{at: 60us, wipe-mft: {nodes: leaf0}}",
		"{at: 0us, for: 200us, mft-full: {nodes: spine0}}",
		"{at: 40us, for: 50us, every: 90us, nic-stall: {nodes: h1}}",
		"{at: 40us, nic-stall: {nodes: h1}}",
		"{at: 40us, for: 500us, slow-receiver: {nodes: h3, rate: 20Gbps}}",
	}
}
