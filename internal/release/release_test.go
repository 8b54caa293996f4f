// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tag that the tests give to the commit, in clones only.
const (
	tag        = "v0.98.7"
	debVersion = "0.98.7"
)

// TestRelease builds a release of a tag, and tries its uses. It compiles the program for several
// systems, so it is left out unless MCASTLAB_RELEASE names these, as in make release-check. With
// MCASTLAB_RELEASE_COLD the second build takes nothing from the first one's cache.
func TestRelease(t *testing.T) {
	targets := os.Getenv("MCASTLAB_RELEASE")
	if targets == "" {
		t.Skip("MCASTLAB_RELEASE names no systems to build for: make release-check")
	}
	top := strings.TrimSpace(run(t, ".", nil, "git", "rev-parse", "--show-toplevel"))
	one, two := tagged(t, top, "one"), tagged(t, top, "a place with another name")
	built := makeRelease(t, one, targets)
	t.Run("Reproducible", func(t *testing.T) {
		t.Setenv("TZ", "Asia/Kathmandu")
		t.Setenv("LC_ALL", "C")
		t.Setenv("GOFLAGS", "-tags=mcastlab_elsewhere")
		if os.Getenv("MCASTLAB_RELEASE_COLD") != "" {
			t.Setenv("GOCACHE", t.TempDir())
		}
		if err := os.WriteFile(filepath.Join(two, "README.md"), []byte("changed and not committed"), 0o600); err != nil {
			t.Fatal(err)
		}
		again := makeRelease(t, two, targets)
		if len(again) != len(built) || len(built) < 3 {
			t.Errorf("built %d files, then %d", len(built), len(again))
		}
		for name, data := range built {
			if !bytes.Equal(data, again[name]) {
				t.Errorf("%s is another when it is built elsewhere", name)
			}
		}
	})
	t.Run("Systems", func(t *testing.T) { testSystems(t, built, strings.Split(targets, ",")) })
	t.Run("EmptyRoot", func(t *testing.T) { testEmptyRoot(t, built["mcastlab_"+debVersion+"_amd64.deb"]) })
	t.Run("ModulePath", func(t *testing.T) { testModulePath(t, one) })
}

// tagged clones the commit and tags it.
func tagged(t *testing.T, top, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	run(t, ".", nil, "git", "clone", "-q", "--no-hardlinks", top, dir)
	run(t, dir, nil, "git", "tag", tag)
	return dir
}

func makeRelease(t *testing.T, dir, targets string) map[string][]byte {
	t.Helper()
	out := filepath.Join(dir, "dist")
	if err := release(dir, out, strings.Split(targets, ",")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		files[e.Name()] = read(t, filepath.Join(out, e.Name()))
	}
	run(t, out, nil, "sha256sum", "--check", "--quiet", "SHA256SUMS")
	return files
}

// testSystems looks into every archive: the program is for the system and of the version
// that the archive's name says, without a path of this machine.
func testSystems(t *testing.T, built map[string][]byte, targets []string) {
	for _, target := range targets {
		system, processor, _ := strings.Cut(target, "/")
		folder := "mcastlab-" + tag + "-" + system + "-" + processor
		files := map[string][]byte{}
		if system == "windows" {
			z, err := zip.NewReader(bytes.NewReader(built[folder+".zip"]), int64(len(built[folder+".zip"])))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range z.File {
				files[f.Name] = unzip(t, f)
			}
		} else {
			for h, data := range untar(t, built[folder+".tar.gz"]) {
				files[h.Name] = data
			}
		}
		program := files[folder+"/mcastlab"]
		if system == "windows" {
			program = files[folder+"/mcastlab.exe"]
		}
		info, err := buildinfo.Read(bytes.NewReader(program))
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if info.Main.Version != tag || settings["GOOS"] != system || settings["GOARCH"] != processor || settings["CGO_ENABLED"] != "0" || settings["vcs.modified"] != "false" {
			t.Errorf("%s: %s, %v", target, info.Main.Version, settings)
		}
		if bytes.Contains(program, []byte(os.TempDir()+"/mcastlab-release-")) {
			t.Errorf("%s: the program holds the path of the folder it was built in", target)
		}
		for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "mcastlab.1", "completion/mcastlab.bash", "examples/quickstart.mcl.yml", "docs/lab-file.md"} {
			if len(files[folder+"/"+name]) == 0 {
				t.Errorf("%s: the archive has no %s", target, name)
			}
		}
		if target == "linux/amd64" {
			if lib, err := elf.NewFile(bytes.NewReader(files[folder+"/verbs/libibverbs.so.1"])); err != nil || lib.Machine != elf.EM_X86_64 {
				t.Errorf("%s: verbs/libibverbs.so.1 is no library for the processor (%v)", target, err)
			}
		}
		for _, of := range []string{"Go ", "github.com/urfave/cli/v2 ", "github.com/goccy/go-yaml "} {
			if !bytes.Contains(files[folder+"/LICENSES-dependencies.txt"], []byte("\n"+of)) {
				t.Errorf("%s: no licence of %s", target, of)
			}
		}
	}
}

func unzip(t *testing.T, f *zip.File) []byte {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}

// testEmptyRoot installs the package where there is nothing else, not even a shell, runs the
// program with that as its root, and removes the package.
func testEmptyRoot(t *testing.T, deb []byte) {
	if os.Getuid() != 0 {
		missing(t, "the package is installed as root")
	}
	tool(t, "dpkg")
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "work"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "mcastlab.deb")
	if err := os.WriteFile(name, deb, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg := []string{"dpkg", "--root=" + root, "--log=/dev/null", "--force-not-root,script-chrootless,architecture"}
	run(t, ".", nil, append(dpkg, "--install", name)...)
	if status := run(t, ".", nil, append(dpkg, "--status", "mcastlab")...); !strings.Contains(status, "Status: install ok installed") || !strings.Contains(status, "Version: "+debVersion+"\n") {
		t.Errorf("dpkg says\n%s", status)
	}
	if wrong := run(t, ".", nil, append(dpkg, "--verify", "mcastlab")...); wrong != "" {
		t.Errorf("dpkg finds other files than the package lists:\n%s", wrong)
	}
	inside := func(args ...string) string { return run(t, ".", nil, append([]string{"chroot", root}, args...)...) }
	if got := inside("/usr/bin/mcastlab", "version"); got != "mcastlab "+tag+"\n" {
		t.Errorf("version prints %q", got)
	}
	if table := inside("/usr/bin/mcastlab", "run", "-q", "--runs", "/work", "/usr/share/doc/mcastlab/examples/quickstart.mcl.yml"); !strings.Contains(table, "Every byte was right at every receiver.") {
		t.Errorf("an example prints\n%s", table)
	}
	for _, lib := range []string{"libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1", "libmcasttime.so", "libmcastsysfs.so"} {
		if _, err := os.Stat(filepath.Join(root, "usr/lib/mcastlab/verbs", lib)); err != nil {
			t.Error(err)
		}
	}
	t.Run("Manual", func(t *testing.T) { testManual(t, filepath.Join(root, "usr/share/man/man1/mcastlab.1.gz")) })
	t.Run("Completion", func(t *testing.T) { testCompletion(t, root) })
	run(t, ".", nil, append(dpkg, "--purge", "mcastlab")...)
	err := filepath.WalkDir(filepath.Join(root, "usr"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			t.Errorf("%s is left when the package is removed", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// testManual renders the page with both programs that people read such pages with.
func testManual(t *testing.T, page string) {
	tool(t, "mandoc")
	tool(t, "man")
	if said := run(t, ".", nil, "mandoc", "-Tlint", "-Wwarning", page); said != "" {
		t.Errorf("mandoc warns:\n%s", said)
	}
	c := exec.Command("man", "--warnings", "-Tutf8", "-l", page)
	c.Env = append(os.Environ(), "MANWIDTH=100", "LC_ALL=C.UTF-8")
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	if err := c.Run(); err != nil || errOut.Len() > 0 {
		t.Errorf("man: %v\n%s", err, &errOut)
	}
	if text := out.String(); !strings.Contains(text, "mcastlab "+tag) || !strings.Contains(text, "MCASTLAB_RUN_SEED") {
		t.Errorf("the page reads\n%.2000s", text)
	}
}

// testCompletion loads the file into a shell and presses Tab: its completions come from the installed
// program.
func testCompletion(t *testing.T, root string) {
	tool(t, "bash")
	script := `set -eu
source "$1/usr/share/bash-completion/completions/mcastlab"
complete -p mcastlab > /dev/null
set +eu
COMP_WORDS=("$1/usr/bin/mcastlab" ver) COMP_CWORD=1
_mcastlab
echo "${COMPREPLY[@]}"`
	if got := run(t, t.TempDir(), nil, "bash", "--norc", "-c", script, "bash", root); strings.TrimSpace(got) != "version" {
		t.Errorf("mcastlab ver is completed to %q", got)
	}
}

// testModulePath installs the tag with go install as a user does. Go takes the module from
// the clone in place of the repository on the network, by git and with all of its own rules,
// and the modules it requires from those that this machine has.
func testModulePath(t *testing.T, clone string) {
	have := strings.TrimSpace(run(t, ".", nil, "go", "env", "GOMODCACHE"))
	bin := t.TempDir()
	env := []string{
		"GOBIN=" + bin, "GOMODCACHE=" + filepath.Join(t.TempDir(), "mod"), "GOFLAGS=-trimpath -modcacherw", "CGO_ENABLED=0",
		"GOPROXY=file://" + have + "/cache/download", "GOPRIVATE=github.com/mcastlab/mcastlab", "GOSUMDB=off", "GOVCS=*:git",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + clone + ".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/mcastlab/mcastlab",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
	}
	run(t, bin, env, "go", "install", "github.com/mcastlab/mcastlab/cmd/mcastlab@"+tag)
	if got := run(t, bin, nil, filepath.Join(bin, "mcastlab"), "version"); got != "mcastlab "+tag+"\n" {
		t.Errorf("version prints %q", got)
	}
	run(t, bin, nil, filepath.Join(bin, "mcastlab"), "validate", filepath.Join(clone, "examples", "quickstart.mcl.yml"))
}

func run(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, err := command(dir, env, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// tool skips the test if a program is missing.
func tool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		missing(t, "there is no "+name)
	}
}

// missing skips the test, or fails it where all tools have to be there.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}
