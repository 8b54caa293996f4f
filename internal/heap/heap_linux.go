// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	pageSize = 2 << 20
	// apart is the number of low bits in which addresses of the heap may differ: the runtime takes
	// its arenas from one range of the address space.
	apart = 40
)

// collapse moves the heap's present memory into huge pages until all of it is or over reports that it is of no use any more. It
// reports whether the kernel can. The heap may be used meanwhile.
func collapse(over func() bool) bool {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return false
	}
	defer maps.Close() //nolint:errcheck // it was only read
	here := uint64(uintptr(unsafe.Pointer(new([64 << 10]byte)))) >> apart
	able := false
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		from, to, ok := anonymous(lines.Text())
		if !ok || from>>apart != here {
			continue
		}
		from, to = (from+pageSize-1)&^(pageSize-1), to&^(pageSize-1)
		if from >= to {
			continue
		}
		// New memory comes in huge pages, and present memory is moved.
		able = advise(from, to-from, unix.MADV_HUGEPAGE) || able
		for ; from < to && !over(); from += pageSize {
			if resident(from) {
				advise(from, pageSize, unix.MADV_COLLAPSE)
			}
		}
	}
	return able
}

// anonymous returns the range of a line of /proc/self/maps if it is memory that may be written and
// that belongs to no file.
func anonymous(line string) (from, to uint64, ok bool) {
	f := strings.Fields(line)
	if len(f) < 5 || f[1] != "rw-p" || f[4] != "0" {
		return 0, 0, false
	}
	low, high, _ := strings.Cut(f[0], "-")
	from, err := strconv.ParseUint(low, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	to, err = strconv.ParseUint(high, 16, 64)
	return from, to, err == nil
}

// resident reports whether most of a huge page is in memory: the rest would have to be found for it.
func resident(at uint64) bool {
	var pages [pageSize / 4096]byte
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(at), pageSize, uintptr(unsafe.Pointer(&pages[0])))
	n := 0
	for _, p := range pages {
		n += int(p & 1)
	}
	return errno == 0 && n > len(pages)/2
}

func advise(at, n uint64, advice uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(at), uintptr(n), advice)
	return errno == 0
}
