// SPDX-License-Identifier: Apache-2.0

package bcast

import (
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// lacks returns the external hosts that lack data or acknowledgements by the last sample.
func (r *record) lacks() []collective.Lack {
	if len(r.Samples) == 0 {
		return nil
	}
	return r.Samples[len(r.Samples)-1].Lacks
}

// unfinished returns the error with which ranks end if an external host lacks a message and others were to follow: it takes
// none before that. After the last one the row says all, and there is none.
func (p *Params) unfinished(rec *record, lacks []collective.Lack) error {
	left := p.iterations(p.Sizes[rec.Size]) - len(rec.Samples)
	for _, size := range p.Sizes[rec.Size+1:] {
		left += p.WarmUp + p.iterations(size)
	}
	if left == 0 {
		return nil
	}
	return fmt.Errorf("%d more messages were to be sent: %s", left, apps.LacksText(lacks))
}
