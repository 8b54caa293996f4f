// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
)

// TagKey is the length of the key of frames' tags, in bytes.
const TagKey = 16

// tagger makes the tags by which the receiver knows announced frames.
type tagger struct {
	seal  cipher.AEAD // nil: no program could deceive the receiver
	nonce [12]byte
	sum   [16]byte
}

func newTagger(key []byte) (*tagger, error) {
	if len(key) == 0 {
		return &tagger{}, nil
	}
	if len(key) != TagKey {
		return nil, fmt.Errorf("the key of frames' tags has %d bytes, and not %d", len(key), TagKey)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	t := &tagger{}
	t.seal, err = cipher.NewGCM(block)
	return t, err
}

// of returns the tag of the nth frame of a transmitter. With a key it is of all its bytes and of its place (GMAC):
// without the key no program makes a frame that passes for another, and a copy passes in no other place than its
// original.
func (t *tagger) of(id int, n uint64, b []byte) uint64 {
	if t.seal == nil {
		return tagOf(b)
	}
	binary.NativeEndian.PutUint32(t.nonce[:4], uint32(id))
	binary.NativeEndian.PutUint64(t.nonce[4:], n)
	return binary.NativeEndian.Uint64(t.seal.Seal(t.sum[:0], t.nonce[:], nil, b))
}

// tagOf returns a tag without a key: enough of a frame's bytes to distinguish it from its neighbours.
func tagOf(b []byte) uint64 {
	n := len(b)
	tag := uint64(n)
	for _, x := range b[max(0, n-6):] {
		tag = tag<<8 | uint64(x)
	}
	return tag
}
