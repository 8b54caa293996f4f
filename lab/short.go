// SPDX-License-Identifier: Apache-2.0

package lab

// Shorthands: values that may be written as a scalar.

// Short reads pfc: true and pfc: false.
func (p *PFC) Short(s string) error { return onOff(&p.Enabled, s) }

// Short reads a link by its ends.
func (l *CustomLink) Short(ends string) error {
	l.Ends = ends
	return nil
}
