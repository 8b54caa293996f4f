// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"runtime/debug"
	"strings"
)

// modulePath is the module that has a version.
const modulePath = "github.com/mcastlab/mcastlab"

// Version returns the program's version: a release's, or the commit it was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

// versionOf names a release by its tag, whether it was built from a clone or by the module's
// path, and any other clone by its commit. A user's own program is known by the version of
// mcastlab that it requires.
func versionOf(info *debug.BuildInfo) string {
	if info.Main.Path != modulePath {
		for _, m := range info.Deps {
			if m.Path != modulePath {
				continue
			}
			if m.Replace != nil && m.Replace.Version != "" {
				return m.Replace.Version
			}
			return m.Version
		}
	}
	revision := buildSetting(info, "vcs.revision")
	if len(revision) < 12 || !strings.Contains(info.Main.Version, revision[:12]) && strings.HasPrefix(info.Main.Version, "v") {
		return info.Main.Version
	}
	version := "dev-" + revision[:12]
	if buildSetting(info, "vcs.modified") == "true" {
		version += "+changes"
	}
	return version
}

// VersionDate returns the date of the commit that the program was built from, or nothing if the
// build did not record one.
func VersionDate() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Path != modulePath {
		return ""
	}
	date, _, _ := strings.Cut(buildSetting(info, "vcs.time"), "T")
	return date
}

func buildSetting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
