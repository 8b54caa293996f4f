// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/report"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// legible is a script that returns the illegible parts of a page, as lines.
//
//go:embed testdata/legible.js
var legible string

// profile returns a folder for a browser, whose processes write there for some time after it has ended.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); ; <-time.After(20 * time.Millisecond) {
			if err := os.RemoveAll(dir); err == nil {
				return
			} else if time.Now().After(deadline) {
				t.Error(err)
				return
			}
		}
	})
	return dir
}

// browse starts a headless Chromium that ends with the test.
func browse(t *testing.T) context.Context {
	t.Helper()
	if os.Getenv("MCASTLAB_REQUIRE_TOOLS") == "" {
		t.Skip("takes half a minute for a user who has not started Chromium before: set MCASTLAB_REQUIRE_TOOLS")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.UserDataDir(profile(t)), chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	within, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(stop)
	all, end := chromedp.NewExecAllocator(within, options...)
	t.Cleanup(end)
	ctx, quit := chromedp.NewContext(all)
	t.Cleanup(quit)
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return ctx
}

// pages writes the page of the committed figures and those of two runs, and returns their names.
func pages(t *testing.T) []string {
	t.Helper()
	dir, measured := t.TempDir(), stored(t)
	page, err := Write(dir, Judge(load(t), measured), measured)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{page}
	for name, text := range map[string]string{
		"small": "name: small\ntopology: {fat-tree: {k: 4}}\nworkloads:\n  - bcast: {schemes: [cepheus, chain, binomial], sizes: [64B, 64KiB, 1MiB]}\n" +
			"faults:\n  - {at: 20us, for: 150us, pause: {node: [h3]}}\n  - {loss: {rate: 0.002, frames: {kind: data}}}\n",
		"large": "name: large\ntopology: {three-layer: {preset: ft1024}}\nworkloads:\n  - bcast: {schemes: [cepheus], sizes: [64B], iterations: 1, memory: phantom}\n",
	} {
		l, err := lab.Parse(name+".mcl.yml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		run, err := runner.Simulate(t.Context(), l, runner.Options{Base: dir, Env: apps.Env{}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := report.Read(run.RunDir)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name+".html")
		if err := os.WriteFile(file, []byte(report.HTML([]*report.Run{r})), 0o644); err != nil {
			t.Fatal(err)
		}
		all = append(all, file)
	}
	return all
}

// TestLegible: in a browser, on a wide and on a narrow screen, in light and in dark, once and twice as fine, no text of a picture lies over another or outside, texts are large
// enough and stand out from the background, and no page scrolls sideways. With MCASTLAB_SCREENSHOTS pictures of the pages are kept in that folder.
func TestLegible(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	ctx := browse(t)
	for _, page := range pages(t) {
		for _, width := range []int64{1280, 400} {
			for _, scheme := range []string{"light", "dark"} {
				for _, scale := range []float64{1, 2} {
					name := fmt.Sprintf("%s-%d-%s-%gx", strings.TrimSuffix(filepath.Base(page), ".html"), width, scheme, scale)
					if lines, err := look(ctx, page, width, scheme, scale, name); err != nil {
						t.Fatalf("%s: %v", name, err)
					} else if len(lines) > 0 {
						t.Errorf("%s: %d faults:\n%s", name, len(lines), strings.Join(lines[:min(len(lines), 12)], "\n"))
					}
				}
			}
		}
	}
}

// look opens a page as a screen of some width shows it, and returns its illegible parts.
func look(ctx context.Context, page string, width int64, scheme string, scale float64, name string) (lines []string, err error) {
	err = chromedp.Run(ctx,
		chromedp.EmulateViewport(width, 900, chromedp.EmulateScale(scale)),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate("file://"+page),
		chromedp.Evaluate(legible, &lines))
	dir := os.Getenv("MCASTLAB_SCREENSHOTS")
	if err != nil || dir == "" {
		return lines, err
	}
	var picture []byte
	if err := chromedp.Run(ctx, chromedp.FullScreenshot(&picture, 80)); err != nil {
		return lines, err
	}
	return lines, os.WriteFile(filepath.Join(dir, name+".jpg"), picture, 0o644)
}

// TestLegibleBites: each fault of a page that has all of them is reported.
func TestLegibleBites(t *testing.T) {
	ctx := browse(t)
	page := filepath.Join(t.TempDir(), "bad.html")
	text := `<!doctype html><meta name="viewport" content="width=device-width,initial-scale=1"><body style="margin:0"><svg width="1400" height="200"><rect class="p" width="1400" height="200" fill="#fff"/>` +
		`<text x="10" y="50">one text</text><text x="20" y="52">another</text><text x="1390" y="100">outside</text><text x="200" y="100" font-size="4">small</text><text x="300" y="100" fill="#eee">faint</text></svg>`
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	lines, err := look(ctx, page, 1280, "light", 1, "bad")
	all := strings.Join(lines, "\n")
	for _, want := range []string{"over", "outside of its picture", "high", "contrast", "scrolls sideways"} {
		if err != nil || !strings.Contains(all, want) {
			t.Errorf("nothing is told of %q: %v\n%s", want, err, all)
		}
	}
	if err := os.WriteFile(page, []byte(`<!doctype html><p>nothing`), 0o644); err != nil {
		t.Fatal(err)
	}
	if lines, err := look(ctx, page, 1280, "light", 1, "good"); err != nil || len(lines) > 0 {
		t.Errorf("of a page without fault is told %q, %v", lines, err)
	}
}
