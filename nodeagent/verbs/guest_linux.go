// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapImage returns memory for the image of n bytes. Only the parts that are read take room.
func mapImage(n uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if n > imageMax {
		return nil, fmt.Errorf("register %d bytes: at most %d: %w", n, uint64(imageMax), unix.ENOMEM)
	}
	return unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
}

// imageMax is the longest region, as the library reports it of the device.
const imageMax = 1 << 40

// checkMem returns an error if a descriptor is not that of a process's memory. Only procfs lets the
// process that opened it decide whose memory that is, and only there reads do not wait for files that a
// program keeps open.
func checkMem(fd int) error {
	var s unix.Statfs_t
	if err := unix.Fstatfs(fd, &s); err != nil {
		return fmt.Errorf("inspect the descriptor of the program's memory: %w", err)
	}
	if s.Type != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("the descriptor of the program's memory is not of procfs: %w", unix.EINVAL)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return fmt.Errorf("the descriptor of the program's memory is not open for reading and writing: %w", unix.EINVAL)
	}
	return nil
}

// fetch reads the program's memory into b, all of it. The NIC may read b meanwhile, as a NIC's DMA sees
// concurrent writes of the processor; the system call by its number keeps the race detector from taking
// that for a mistake.
func fetch(mem int, b []byte, addr uint64) error {
	for len(b) > 0 {
		n, _, e := unix.Syscall6(unix.SYS_PREAD64, uintptr(mem), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(addr), 0, 0)
		switch {
		case e == unix.EINTR:
			continue
		case e != 0:
			return fmt.Errorf("read %d bytes of the program at %#x: %w", len(b), addr, e)
		case n == 0:
			return fmt.Errorf("read %d bytes of the program at %#x: %w", len(b), addr, io.ErrUnexpectedEOF)
		}
		b, addr = b[n:], addr+uint64(n)
	}
	return nil
}

// put writes b to the program's memory.
func put(mem int, b []byte, addr uint64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(mem, b, int64(addr))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("write %d bytes of the program at %#x: %w", len(b), addr, err)
		case n == 0:
			return fmt.Errorf("write %d bytes of the program at %#x: %w", len(b), addr, io.ErrShortWrite)
		}
		b, addr = b[n:], addr+uint64(n)
	}
	return nil
}
