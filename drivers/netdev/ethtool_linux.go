// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Words of the kernel's ethtool interface (linux/ethtool.h).
const (
	featureSet  = 4  // ETH_SS_FEATURES: the string set of the features' names
	nameBytes   = 32 // ETH_GSTRING_LEN
	stringsHead = 12 // command, set and count before the names
	featuresMax = 1 << 12
)

// features switches the kernel's features of interfaces, in the network namespace of the
// thread that opened it.
type features struct{ fd int }

// feature is one feature of an interface.
type feature struct {
	available bool // can be switched
	active    bool
	fixed     bool // never changes
}

func openFeatures() (features, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_IP)
	if err != nil {
		return features{}, fmt.Errorf("reach ethtool: %w", err)
	}
	return features{fd}, nil
}

func (s features) close() { _ = unix.Close(s.fd) } // nothing was written to it

// request is the kernel's struct ifreq with an address in its union.
type request struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

// ioctl makes the ethtool request with which data begins. The address stays a pointer until the call: a
// number would still name the old place when a growing stack moves the data, and the kernel's answer
// would be lost.
func (s features) ioctl(name string, data unsafe.Pointer) error {
	r := request{data: data}
	if len(name) >= len(r.name) {
		return fmt.Errorf("interface name %q is longer than %d bytes", name, len(r.name)-1)
	}
	copy(r.name[:], name)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	if e != 0 {
		return e
	}
	return nil
}

// names returns the names of an interface's features by their bit; a bit may have none.
func (s features) names(name string) ([]string, error) {
	info := struct {
		cmd, reserved uint32
		mask          uint64 // one bit per string set asked for
		count         uint32
	}{cmd: unix.ETHTOOL_GSSET_INFO, mask: 1 << featureSet}
	if err := s.ioctl(name, unsafe.Pointer(&info)); err != nil {
		return nil, fmt.Errorf("count features: %w", err)
	}
	if info.mask == 0 || info.count == 0 || info.count > featuresMax {
		return nil, fmt.Errorf("count features: the kernel says %d", info.count)
	}
	text := make([]byte, stringsHead+info.count*nameBytes)
	binary.NativeEndian.PutUint32(text, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(text[4:], featureSet)
	binary.NativeEndian.PutUint32(text[8:], info.count)
	if err := s.ioctl(name, unsafe.Pointer(&text[0])); err != nil {
		return nil, fmt.Errorf("read names of features: %w", err)
	}
	all := make([]string, info.count)
	for i := range all {
		b, _, _ := bytes.Cut(text[stringsHead+i*nameBytes:][:nameBytes], []byte{0})
		all[i] = string(b)
	}
	return all, nil
}

// words returns the number of words of 32 bits that hold a bit for each of n features.
func words(n int) int { return (n + 31) / 32 }

// read returns the features of an interface by name.
func (s features) read(name string) (map[string]feature, error) {
	names, err := s.names(name)
	if err != nil {
		return nil, err
	}
	n := words(len(names))
	b := make([]uint32, 2+4*n) // command and size, then available, requested, active and never changed of each word
	b[0], b[1] = unix.ETHTOOL_GFEATURES, uint32(n)
	if err := s.ioctl(name, unsafe.Pointer(&b[0])); err != nil {
		return nil, fmt.Errorf("read features: %w", err)
	}
	all := map[string]feature{}
	for i, f := range names {
		if f == "" {
			continue
		}
		w, bit := b[2+4*(i/32):], uint32(1)<<(i%32)
		all[f] = feature{available: w[0]&bit != 0, active: w[2]&bit != 0, fixed: w[3]&bit != 0}
	}
	return all, nil
}

// change switches features of an interface. That the kernel accepts it does not mean that it has done
// all of it: read returns the result.
func (s features) change(name string, want map[string]bool) error {
	names, err := s.names(name)
	if err != nil {
		return err
	}
	n, found := words(len(names)), 0
	b := make([]uint32, 2+2*n) // command and size, then valid and requested of each word
	b[0], b[1] = unix.ETHTOOL_SFEATURES, uint32(n)
	for i, f := range names {
		on, asked := want[f]
		if !asked {
			continue
		}
		found++
		w, bit := b[2+2*(i/32):], uint32(1)<<(i%32)
		if w[0] |= bit; on {
			w[1] |= bit
		}
	}
	if found != len(want) {
		return fmt.Errorf("the kernel knows only %d of %d features", found, len(want))
	}
	if err := s.ioctl(name, unsafe.Pointer(&b[0])); err != nil {
		return fmt.Errorf("change features: %w", err)
	}
	return nil
}
