// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	const revision = "0123456789abcdef0123456789abcdef01234567"
	clone := func(version, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main:     debug.Module{Path: modulePath, Version: version},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified}},
		}
	}
	user := func(m debug.Module) *debug.BuildInfo {
		info := clone("v7.0.0", "false")
		info.Main.Path, info.Deps = "example.org/mine", []*debug.Module{{Path: "example.org/other", Version: "v3.0.0"}, &m}
		return info
	}
	for _, c := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"a clone at a tag", clone("v0.1.0", "false"), "v0.1.0"},
		{"with changes", clone("v0.1.0+dirty", "true"), "v0.1.0+dirty"},
		{"a clone between tags", clone("v0.1.1-0.20261122000000-0123456789ab", "false"), "dev-0123456789ab"},
		{"with changes", clone("v0.1.1-0.20261122000000-0123456789ab+dirty", "true"), "dev-0123456789ab+changes"},
		{"of a Go that gives clones no version", clone("(devel)", "false"), "dev-0123456789ab"},
		{"by the module's path", &debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "v0.1.0"}}, "v0.1.0"},
		{"go run", &debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "(devel)"}}, "(devel)"},
		{"a user's program", user(debug.Module{Path: modulePath, Version: "v0.1.0"}), "v0.1.0"},
		{"with another in its place", user(debug.Module{Path: modulePath, Version: "v0.1.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v0.2.0"}}), "v0.2.0"},
		{"with a folder in its place", user(debug.Module{Path: modulePath, Version: "v0.1.0", Replace: &debug.Module{Path: "../mcastlab"}}), "v0.1.0"},
	} {
		if got := versionOf(c.info); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
