// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// file is one file of an archive.
type file struct {
	name string // with slashes
	mode fs.FileMode
	data []byte
	link string // if not empty, the file is a symbolic link to this name in its folder
}

// shared are the files that are the same for every system.
type shared struct {
	docs            []file // README, licence, changes, pages, examples
	manual          []byte
	bash, zsh, fish []byte
	dependencies    []byte            // licences of compiled-in modules
	libraries       map[string][]file // by system: the folder verbs
}

// sharedFiles asks the program for its manual and completion, and reads the rest from the
// clone.
func (s *source) sharedFiles(binary string, targets []string) (*shared, error) {
	r := &shared{libraries: map[string][]file{}}
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
		r.docs = append(r.docs, file{name: n, mode: 0o644, data: data})
	}
	for _, t := range targets {
		if r.libraries[t], err = s.verbs(t); err != nil {
			return nil, fmt.Errorf("verbs libraries of %s: %w", t, err)
		}
	}
	r.dependencies, err = s.licences(targets)
	return r, err
}

// compilers are the C compilers for a processor on others, as Debian names them.
var compilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// verbs builds the libraries that programs on nodes load, for a system with Linux. For another processor than this server's it takes a cross
// compiler; if there is none it says so, and the files for that processor have no libraries. The library for MPI is left out: it fits the
// Open MPI alone that it is built with.
func (s *source) verbs(target string) ([]file, error) {
	system, processor, _ := strings.Cut(target, "/")
	if system != "linux" {
		return nil, nil
	}
	var env []string
	if processor != runtime.GOARCH {
		cc := compilers[processor]
		if _, err := exec.LookPath(cc); err != nil {
			fmt.Fprintf(os.Stderr, "release: the files for %s have no verbs libraries: there is no %s\n", target, cc)
			return nil, nil
		}
		env = []string{"CC=" + cc}
	}
	dir, err := os.MkdirTemp(filepath.Dir(s.dir), "verbs-")
	if err != nil {
		return nil, err
	}
	if _, err := command(s.dir, env, "sh", "verbs/build.sh", dir); err != nil {
		return nil, err
	}
	all := []file{
		{name: "verbs/libibverbs.so", mode: 0o777, link: "libibverbs.so.1"}, {name: "verbs/librdmacm.so", mode: 0o777, link: "librdmacm.so.1"},
	}
	for _, n := range []string{"libibverbs.so.1", "libmcastsysfs.so", "libmcasttime.so", "librdmacm.so.1"} {
		data, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			return nil, err
		}
		all = append(all, file{name: "verbs/" + n, mode: 0o644, data: data})
	}
	return all, nil
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
		{name: program, mode: 0o755, data: data}, {name: "mcastlab.1", mode: 0o644, data: r.manual},
		{name: "LICENSES-dependencies.txt", mode: 0o644, data: r.dependencies}, {name: "completion/mcastlab.bash", mode: 0o644, data: r.bash},
		{name: "completion/_mcastlab", mode: 0o644, data: r.zsh}, {name: "completion/mcastlab.fish", mode: 0o644, data: r.fish},
	}
	all = append(all, r.docs...)
	all = append(all, r.libraries[target]...)
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
