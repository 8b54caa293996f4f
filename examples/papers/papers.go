// SPDX-License-Identifier: Apache-2.0

// Package papers holds the labs that reproduce the papers' results, for programs that have no source tree.
package papers

import "embed"

// Labs are the lab files of this folder.
//
//go:embed *.mcl.yml
var Labs embed.FS
