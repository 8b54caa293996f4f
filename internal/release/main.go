// SPDX-License-Identifier: Apache-2.0

// Command release builds the published files of a version of mcastlab: an archive per system, Debian
// packages and a list of checksums. Every build of the same commit with the same Go gives the same
// bytes (docs/versions.md).
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	name     = "mcastlab"
	program  = "./cmd/mcastlab"
	homepage = "https://github.com/mcastlab/mcastlab"
)

// targetsAll are the systems there are releases for. Labs run on Linux; the others simulate.
const targetsAll = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64"

func main() {
	out := flag.String("o", "dist", "folder that the files go to; what is in it is removed")
	targets := flag.String("targets", targetsAll, "systems, separated by commas")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "release: takes no argument")
		os.Exit(2)
	}
	if err := release(".", *out, strings.Split(*targets, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// source is the commit that is released, in a clone of its own: nothing that is not
// committed gets into a release, and Go stamps the tag.
type source struct {
	dir  string
	time time.Time // of the commit, or SOURCE_DATE_EPOCH
}

// release builds all files of the commit that the clone at dir has checked out.
func release(dir, out string, targets []string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("release on Linux: only there does the program know all of its commands, which the manual page is made of")
	}
	temp, err := os.MkdirTemp("", "mcastlab-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // leftovers in the system's temporary folder do no harm
	src := source{dir: filepath.Join(temp, name)}
	if err := src.clone(dir); err != nil {
		return err
	}
	host := runtime.GOOS + "/" + runtime.GOARCH
	binaries := map[string]string{}
	for _, t := range append([]string{host}, targets...) {
		if binaries[t] != "" {
			continue
		}
		binaries[t] = filepath.Join(temp, strings.ReplaceAll(t, "/", "-"))
		if err := src.build(t, binaries[t]); err != nil {
			return err
		}
	}
	shared, err := src.sharedFiles(binaries[host], targets)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(binaries[host])
	if err != nil {
		return fmt.Errorf("read the version of the program: %w", err)
	}
	files := map[string][]byte{}
	for _, t := range targets {
		if err := src.pack(files, t, info.Main.Version, binaries[t], shared); err != nil {
			return fmt.Errorf("pack %s: %w", t, err)
		}
	}
	return write(out, files)
}

// clone checks the commit out and takes its time for all files.
func (s *source) clone(dir string) error {
	if _, err := command(dir, nil, "git", "clone", "-q", "--no-hardlinks", ".", s.dir); err != nil {
		return err
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		text, err := command(s.dir, nil, "git", "log", "-1", "--format=%ct")
		if err != nil {
			return err
		}
		seconds = strings.TrimSpace(string(text))
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	s.time = time.Unix(n, 0).UTC()
	return nil
}

// build compiles the program for a system. What the machine has set for Go is left out where
// it would show in the bytes.
func (s *source) build(target, binary string) error {
	_, err := command(s.dir, buildEnv(target), "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w -buildid=", "-o", binary, program)
	return err
}

func buildEnv(target string) []string {
	system, processor, _ := strings.Cut(target, "/")
	return []string{
		"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + processor, "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off",
	}
}

// write replaces the contents of the folder and adds the checksums.
func write(out string, files map[string][]byte) error {
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var names []string
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	var sums bytes.Buffer
	for _, n := range names {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(files[n]), n)
		if err := os.WriteFile(filepath.Join(out, n), files[n], 0o644); err != nil {
			return err
		}
	}
	fmt.Print(sums.String())
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), sums.Bytes(), 0o644)
}

// command runs a program and returns its output.
func command(dir string, env []string, args ...string) ([]byte, error) {
	c := exec.Command(args[0], args[1:]...)
	var errOut bytes.Buffer
	c.Dir, c.Env, c.Stderr = dir, append(os.Environ(), env...), &errOut
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out, nil
}
