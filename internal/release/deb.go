// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/md5" //nolint:gosec // the format of packages asks for it
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
)

const (
	maintainer  = "The mcastlab authors <mcastlab@users.noreply.github.com>"
	description = `testbed emulator for in-network RoCE multicast
 mcastlab simulates fabrics of switches that replicate RoCE messages and
 aggregate acknowledgments (Cepheus, Gleam), and the network adapters at
 their edge, or runs them as containers on this server. Labs are YAML
 files; every byte of every message is checked at every receiver.
 .
 Simulations need nothing else. Labs in containers need Docker and root.
 Programs that use libibverbs run in such labs unmodified.
`
)

// debianVersion returns a version of Go's as one of Debian's, in which a tilde marks versions before a
// release.
func debianVersion(version string) (string, error) {
	v, _, _ := strings.Cut(version, "+")
	if !regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`).MatchString(v) {
		return "", fmt.Errorf("the program's version is %q and not one of a tag or commit", version)
	}
	release, before, is := strings.Cut(v[1:], "-")
	if is {
		release += "~" + strings.ReplaceAll(before, "-", ".")
	}
	return release, nil
}

// debOf returns a Debian package: an ar archive of two tar archives, the package's description and its
// files. It depends on nothing, as the program is linked statically.
func debOf(version, processor string, binary []byte, r *shared, at time.Time) ([]byte, error) {
	files, err := installed(version, r, at)
	if err != nil {
		return nil, err
	}
	files = append(files, file{name: "usr/bin/" + name, mode: 0o755, data: binary})
	for _, f := range r.libraries["linux/"+processor] {
		f.name = path.Join("usr/lib", name, f.name)
		files = append(files, f)
	}
	var sums strings.Builder
	kib := 0
	for _, f := range withFolders(files) {
		kib += (len(f.data) + 1023) / 1024
		if f.data != nil {
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.data), f.name)
		} else {
			kib++ // dpkg counts a folder or a link as one
		}
	}
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s\nInstalled-Size: %d\nSuggests: docker.io, tshark\nSection: net\n"+
		"Priority: optional\nHomepage: %s\nDescription: %s", name, version, processor, maintainer, kib, homepage, description)
	about, err := tarOf("./", []file{{name: "control", mode: 0o644, data: []byte(control)}, {name: "md5sums", mode: 0o644, data: []byte(sums.String())}}, at)
	if err != nil {
		return nil, err
	}
	data, err := tarOf("./", files, at)
	if err != nil {
		return nil, err
	}
	return arOf([]file{
		{name: "debian-binary", mode: 0o644, data: []byte("2.0\n")}, {name: "control.tar.gz", mode: 0o644, data: about},
		{name: "data.tar.gz", mode: 0o644, data: data},
	}, at), nil
}

// installed returns the files of the package that are the same on every processor.
func installed(version string, r *shared, at time.Time) ([]file, error) {
	manual, err := gzipOf(r.manual)
	if err != nil {
		return nil, err
	}
	changes, err := gzipOf(fmt.Appendf(nil, "%s (%s) unstable; urgency=medium\n\n  * What has changed is in CHANGELOG.md.\n\n -- %s  %s\n",
		name, version, maintainer, at.UTC().Format(time.RFC1123Z)))
	if err != nil {
		return nil, err
	}
	doc := "usr/share/doc/" + name + "/"
	copyright := fmt.Sprintf("mcastlab, %s, is under the Apache License,\nVersion 2.0: /usr/share/common-licenses/Apache-2.0\n\n%s", homepage, r.dependencies)
	all := []file{
		{name: "usr/share/man/man1/mcastlab.1.gz", mode: 0o644, data: manual},
		{name: "usr/share/bash-completion/completions/mcastlab", mode: 0o644, data: r.bash},
		{name: "usr/share/zsh/vendor-completions/_mcastlab", mode: 0o644, data: r.zsh},
		{name: "usr/share/fish/vendor_completions.d/mcastlab.fish", mode: 0o644, data: r.fish},
		{name: doc + "changelog.gz", mode: 0o644, data: changes},
		{name: doc + "copyright", mode: 0o644, data: []byte(copyright)},
	}
	for _, f := range r.docs {
		if f.name != "LICENSE" { // every Debian system has the text
			all = append(all, file{name: path.Join(doc, f.name), mode: f.mode, data: f.data})
		}
	}
	return all, nil
}

// arOf returns the files as an ar archive in the order given.
func arOf(files []file, at time.Time) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, f := range files {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", f.name, at.Unix(), 0, 0, 0o100000|uint32(f.mode), len(f.data))
		b.Write(f.data)
		if len(f.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
