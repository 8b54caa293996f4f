// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// kind is a kind of object that programs make.
type kind int

const (
	ofQP kind = iota
	ofCQ
	ofSRQ
	ofMR
	ofPD
	ofAH
	kinds
)

// mostOf returns the largest number of objects of each kind at a NIC, as ibv_query_device reports it. Queue pairs, queues and regions
// are those of all programs together: each is a mapping of the node's process, of which Linux gives it 65530; a program has one more,
// and objects under destruction and the node itself have the rest. Protection domains and address handles are a program's own: each
// takes memory of the node's process and of nothing else.
func mostOf() [kinds]int {
	return [kinds]int{ofQP: 16384, ofCQ: 16384, ofSRQ: 4096, ofMR: 20480, ofPD: 1 << 16, ofAH: 1 << 16}
}

// room returns an error if programs have as many of a kind as there may be. It is called with the loop's lock.
func (s *Server) room(k kind) error {
	n := 0
	switch k {
	case ofQP:
		n = len(s.qps)
	case ofMR:
		n = len(s.regions)
	case ofCQ:
		for c := range s.clients { // a sum
			n += len(c.cqs)
		}
	case ofSRQ:
		for c := range s.clients { // a sum
			n += len(c.srqs)
		}
	}
	if n >= s.most[k] {
		return fmt.Errorf("make a %s: programs have %d: %w", [...]string{"queue pair", "completion queue", "shared receive queue", "region"}[k], n, unix.ENOMEM)
	}
	return nil
}
