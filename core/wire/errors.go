// SPDX-License-Identifier: Apache-2.0

package wire

import "errors"

// Errors of parsing. Callers count them by kind. They carry no detail, so that a hostile sender
// cannot make a receiver allocate.
var (
	ErrShort    = errors.New("frame is shorter than its headers say")
	ErrTooLong  = errors.New("frame carries more payload than a block holds")
	ErrVersion  = errors.New("header version is not supported")
	ErrLength   = errors.New("length fields contradict each other")
	ErrChecksum = errors.New("checksum is wrong")
	ErrOptions  = errors.New("IPv4 options are not supported")
	ErrFormat   = errors.New("field has a value the format does not allow")
)
