// SPDX-License-Identifier: Apache-2.0

package faults

import "testing"

// TestUnknownKind: a name that is no kind belongs to no class of kinds, and each kind is known.
func TestUnknownKind(t *testing.T) {
	for _, k := range []Kind{"", "pausestorm", "Loss", "losses"} {
		if k.Known() || k.OfFrames() || k.OfLinks() || k.OfControl() || k.Kills() {
			t.Errorf("%q: known %v, of frames %v, of links %v, of control %v, kills %v", k, k.Known(), k.OfFrames(), k.OfLinks(), k.OfControl(), k.Kills())
		}
	}
	for _, k := range Kinds() {
		if !k.Known() {
			t.Errorf("%q is not known", k)
		}
	}
}
