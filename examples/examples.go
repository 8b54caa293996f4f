// SPDX-License-Identifier: Apache-2.0

// Package examples has the example labs of this folder built in, for mcastlab run --example.
package examples

import "embed"

// Files are the lab files, NAME.mcl.yml, and the files that they name.
//
//go:embed *.mcl.yml HPL.dat
var Files embed.FS
