// SPDX-License-Identifier: Apache-2.0

// Package labhook gives package lab/labspec access to unexported parts of package lab.
package labhook

// Inside takes a *lab.Lab and returns the value whose methods lab/labspec calls. Package
// lab sets it before main begins, and nothing changes it later. The values are of type any
// because package lab, which has their types, imports this package; labspec restores the types.
var Inside func(lab any) any
