//go:build !failpoint

package nodeagent

// failpoint does nothing in a release.
func failpoint(string) {}
