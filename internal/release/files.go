// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// file is one file of an archive.
type file struct {
	name string // with slashes
	mode fs.FileMode
	data []byte
}

// shared are the files that are the same for every system.
type shared struct {
	docs            []file // README, licence, changes, pages, examples
	manual          []byte
	bash, zsh, fish []byte
	dependencies    []byte // licences of compiled-in modules
}

// sharedFiles asks the program for its manual and completion, and reads the rest from the
// clone.
func (s *source) sharedFiles(binary string, targets []string) (*shared, error) {
	r := &shared{}
	for _, p := range []struct {
		to   *[]byte
		args []string
	}{
		{&r.manual, []string{binary, "man"}}, {&r.bash, []string{binary, "completion", "bash"}},
		{&r.zsh, []string{binary, "completion", "zsh"}}, {&r.fish, []string{binary, "completion", "fish"}},
	} {
		text, err := command(s.dir, nil, p.args...)
		if err != nil {
			return nil, err
		}
		*p.to = text
	}
	listed, err := command(s.dir, nil, "git", "ls-files", "-z", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "CONTRIBUTING.md", "docs", "examples")
	if err != nil {
		return nil, err
	}
	for _, n := range strings.Split(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(s.dir, filepath.FromSlash(n)))
		if err != nil {
			return nil, err
		}
		r.docs = append(r.docs, file{n, 0o644, data})
	}
	r.dependencies, err = s.licences(targets)
	return r, err
}

// module is go list's description of a module.
type module struct {
	Path, Version, Dir string
	Main               bool
}

// licences returns the licences of every module that the programs contain, and of Go.
func (s *source) licences(targets []string) ([]byte, error) {
	all := map[string]module{}
	for _, t := range targets {
		text, err := command(s.dir, buildEnv(t), "go", "list", "-deps", "-json=Module", program)
		if err != nil {
			return nil, err
		}
		d := json.NewDecoder(strings.NewReader(string(text)))
		for {
			var p struct{ Module *module }
			if err := d.Decode(&p); err == io.EOF {
				break
			} else if err != nil {
				return nil, fmt.Errorf("go list: %w", err)
			}
			if p.Module != nil && !p.Module.Main {
				all[p.Module.Path] = *p.Module
			}
		}
	}
	root, err := command(s.dir, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	all["Go"] = module{Path: "Go", Dir: strings.TrimSpace(string(root))}
	var paths []string
	for p := range all {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	var b strings.Builder
	b.WriteString("mcastlab contains the following works, each under the terms given with it.\nThe source of a module is at its path, in the version named.\n")
	for _, p := range paths {
		if err := writeLicence(&b, all[p]); err != nil {
			return nil, err
		}
	}
	return []byte(b.String()), nil
}

func writeLicence(b *strings.Builder, m module) error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return fmt.Errorf("licence of %s: %w", m.Path, err)
	}
	found := false
	for _, e := range entries { // in the order of their names
		upper := strings.ToUpper(e.Name())
		if e.IsDir() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"}, func(p string) bool { return strings.HasPrefix(upper, p) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return fmt.Errorf("licence of %s: %w", m.Path, err)
		}
		fmt.Fprintf(b, "\n%s\n%s %s: %s\n\n%s\n", strings.Repeat("=", 80), m.Path, m.Version, e.Name(), strings.TrimSpace(string(text)))
		found = true
	}
	if !found {
		return fmt.Errorf("%s %s has no file with its licence", m.Path, m.Version)
	}
	return nil
}

// pack adds a system's archive, and for Linux its package.
func (s *source) pack(files map[string][]byte, target, version, binary string, r *shared) error {
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	system, processor, _ := strings.Cut(target, "/")
	top := strings.Join([]string{name, version, system, processor}, "-")
	program := name
	if system == "windows" {
		program += ".exe"
	}
	all := []file{
		{program, 0o755, data}, {"mcastlab.1", 0o644, r.manual}, {"LICENSES-dependencies.txt", 0o644, r.dependencies},
		{"completion/mcastlab.bash", 0o644, r.bash}, {"completion/_mcastlab", 0o644, r.zsh}, {"completion/mcastlab.fish", 0o644, r.fish},
	}
	all = append(all, r.docs...)
	for i := range all {
		all[i].name = path.Join(top, all[i].name)
	}
	if system == "windows" {
		files[top+".zip"], err = zipOf(all, s.time)
		return err
	}
	if files[top+".tar.gz"], err = tarOf("", all, s.time); err != nil || system != "linux" {
		return err
	}
	v, err := debianVersion(version)
	if err != nil {
		return err
	}
	files[fmt.Sprintf("%s_%s_%s.deb", name, v, processor)], err = debOf(v, processor, data, r, s.time)
	return err
}
