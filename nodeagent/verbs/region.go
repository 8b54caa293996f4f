// SPDX-License-Identifier: Apache-2.0

package verbs

import "github.com/mcastlab/mcastlab/virtrnic"

// region is a memory region of a program: its image here, and where the memory itself is.
type region struct {
	pd     *virtrnic.PD
	access virtrnic.AccessFlags

	mr    *virtrnic.MR // nil: its memory could not be read, so the NIC has it no more
	image []byte       // mapped; nil if it has no bytes
	iova  uint64
	addr  uint64 // in the program

	loaded map[uint64]struct{} // chunks of the image that have been read; the worker's
}

// span returns the offset in the image of n bytes at an address of the region; false if they are not all in it.
func (r *region) span(va, n uint64) (off uint64, ok bool) {
	size := uint64(len(r.image))
	if va < r.iova || n > size || va-r.iova > size-n {
		return 0, false
	}
	return va - r.iova, true
}
