// SPDX-License-Identifier: Apache-2.0

//go:build dependencies

package command

// This import is never compiled. A module that imports this package also sees the dependencies'
// dependencies: one of them asks for a version of genproto from the time before it was split, which
// holds the packages of google.golang.org/genproto/googleapis/api a second time, and go mod tidy
// takes that for an ambiguous import. With the import go.mod asks for a version after the split.
import _ "google.golang.org/genproto/protobuf/field_mask"
