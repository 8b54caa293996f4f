// SPDX-License-Identifier: Apache-2.0

package rankhost

// Hooks give package rank/rankrun access to unexported parts of package rank. Package rank sets them
// before main begins, and nothing changes them later. They are of type any where the type belongs to
// package rank, which imports this package; rankrun restores the types.
var Hooks struct {
	// Start makes a rank; the value is a *rank.Rank.
	Start func(c Config) (any, error)

	// Run runs a rank's program and returns its error, or the failure that unwound it.
	Run func(program func() error) error

	// Inside takes a *rank.Rank, *rank.Group, *rank.Conn or *rank.Buffer and returns the
	// value that has its further methods.
	Inside func(x any) any
}
