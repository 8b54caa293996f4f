// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/mcastlab/mcastlab/lab/report"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/lab/watch"
)

// browser returns a context of a headless Chromium, for at most ten minutes: a busy server takes its time to start one. A test that needs one
// is run where tools are required.
func browser(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	if os.Getenv("MCASTLAB_REQUIRE_TOOLS") == "" {
		t.Skip("takes half a minute for a user who has not started Chromium before: set MCASTLAB_REQUIRE_TOOLS")
	}
	found := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && found == "" {
			found = path
		}
	}
	if found == "" {
		t.Fatal("no Chromium is installed")
	}
	// The sandbox works neither for root nor in most containers, and the only page is our own.
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(found), chromedp.WindowSize(1280, 1000), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(5*time.Minute))
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // events of newer browsers that it does not know
	t.Cleanup(stop)
	return ctx
}

// watching runs mcastlab watch until the test ends, and returns its address.
func watching(t *testing.T, what string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, w := io.Pipe()
	ended := make(chan int, 1)
	var said strings.Builder
	go func() {
		ended <- run(ctx, []string{"mcastlab", "watch", what}, nil, w, &said, hooks{})
		_ = w.Close()
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != exitInterrupted {
			t.Errorf("watch ended with %d: %s", code, said.String())
		}
	})
	if err != nil {
		t.Fatalf("watch printed %q: %v", url, err)
	}
	return strings.TrimSpace(url)
}

// until waits for an expression of the page to hold.
func until(expr string) chromedp.Action {
	return chromedp.Poll(expr, nil, chromedp.WithPollingTimeout(5*time.Minute))
}

// wayClass is the class of a direction of a link, as an expression.
func wayClass(name string) string {
	return fmt.Sprintf(`document.querySelector('[data-way="%s"]').getAttribute("class")`, name)
}

const pausedLab = `name: watched
topology: {star: {hosts: 4}}
nics: {timeout: 262us}
trace: messages
workloads: [{bcast: {label: during, schemes: [cepheus], sizes: [1MiB], iterations: 6}}]
faults: [{in: run, at: 20us, for: 150us, pause: {node: h3}}]
`

// recorded simulates a lab in a folder of the test and returns the run's folder.
func recorded(t *testing.T, text string) string {
	t.Helper()
	runs := t.TempDir()
	if o := call(t, hooks{}, "", "run", "-q", "--runs", runs, write(t, text)); o.code != exitOK {
		t.Fatal(o.err)
	}
	dirs, err := filepath.Glob(filepath.Join(runs, "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	return dirs[0]
}

// TestWatchRun: links take the colour of a pause while it lasts, and lose it when the scrubber goes back; a node, a link
// and a message tell of themselves.
func TestWatchRun(t *testing.T) {
	ctx := browser(t)
	url := watching(t, recorded(t, pausedLab))
	var before, during, after, paused, told, message, node, filled, drained string
	const down = "leaf0:3>h3:0"
	// The lab time of the line below the scrubber leads to a step.
	seek := func(us int) chromedp.Action {
		return chromedp.Evaluate(fmt.Sprintf(`(() => {
			const s = document.getElementById("scrub");
			for (let k = 0; k <= Number(s.max); k++) {
				s.value = k; s.dispatchEvent(new Event("input"));
				if (Number(document.getElementById("now").textContent.match(/to ([0-9.]+) us/)[1]) > %d) return;
			}
		})()`, us), nil)
	}
	err := chromedp.Run(ctx,
		chromedp.Navigate(url), until(`document.getElementById("status").textContent === "a run: ok"`), until(`document.getElementById("now").textContent !== ""`),
		chromedp.Evaluate(`{const p = document.getElementById("paint"); p.value = "pause"; p.dispatchEvent(new Event("change"))}`, nil),
		seek(5), chromedp.Evaluate(wayClass(down), &before),
		seek(100), chromedp.Evaluate(wayClass(down), &during), chromedp.Text("#faults .on", &paused),
		chromedp.SendKeys("#find", down+"\n"), until(`document.getElementById("what").textContent === "`+down+`"`), chromedp.Text("#detail", &told),
		chromedp.ActionFunc(func(ctx context.Context) error { looks(ctx, t, "run"); return nil }),
		seek(400), chromedp.Evaluate(wayClass(down), &after),
		chromedp.Evaluate(`document.querySelector("#messages li:last-child button").click()`, nil), chromedp.Text("#detail", &message),
		chromedp.Evaluate(`document.querySelector('[data-node="leaf0"]').dispatchEvent(new Event("click"))`, nil), chromedp.Text("#detail", &node),
		seek(5), until(`!`+wayClass(down)+`.includes("halted")`),
		chromedp.Evaluate(`{const p = document.getElementById("paint"); p.value = "queue"; p.dispatchEvent(new Event("change"))}`, nil),
		seek(160), chromedp.Evaluate(wayClass(down), &filled), chromedp.Evaluate(`document.getElementById("find").dispatchEvent(new Event("change"))`, nil),
		until(`document.getElementById("what").textContent === "`+down+`" && document.getElementById("detail").textContent.includes("in this step")`),
		seek(5), chromedp.Evaluate(wayClass(down), &drained),
	)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(before, "halted") || !strings.Contains(before, "s0") || !strings.Contains(during, "s6") || !strings.Contains(during, "halted") ||
		!strings.HasPrefix(after, "way s0") || strings.Contains(after, "halted") {
		t.Errorf("the link's class is %q before the pause, %q during it, %q after it", before, during, after)
	}
	if !strings.HasPrefix(filled, "way s6") || !strings.HasPrefix(drained, "way s0") {
		t.Errorf("by queues the link's class is %q at the pause's end and %q before it", filled, drained)
	}
	if !strings.Contains(paused, "h3") || !strings.Contains(paused, "(on)") {
		t.Errorf("of the fault it says %q", paused)
	}
	for _, c := range []struct{ got, want string }{
		{told, "paused by"}, {told, "the cause is at"}, {told, "h3"}, {told, "100 % of this step"}, {message, "after"}, {message, "critical path: pause"}, {node, "pause-received"},
		{node, "port 3: sent"},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("the details lack %q:\n%s", c.want, c.got)
		}
	}
}

// looks checks that the page as it is fits into wide and narrow windows, and keeps pictures of it, light and dark, in
// the folder that MCASTLAB_SHOTS names.
func looks(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	for _, wide := range []int64{1280, 400} {
		for _, scheme := range []string{"light", "dark"} {
			var picture []byte
			var over float64
			err := chromedp.Run(ctx,
				emulation.SetDeviceMetricsOverride(wide, 1000, 1, wide < 500),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				chromedp.Evaluate(`document.documentElement.scrollWidth - window.innerWidth`, &over), chromedp.FullScreenshot(&picture, 100),
			)
			if err != nil || over > 0 {
				t.Errorf("%d wide and %s, the page is %v px too wide: %v", wide, scheme, over, err)
			}
			if dir := os.Getenv("MCASTLAB_SHOTS"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, wide, scheme)), picture, 0o644); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestWatchHostile: what a run's folder says is text on the page, and nothing else.
func TestWatchHostile(t *testing.T) {
	ctx := browser(t)
	dir := recorded(t, pausedLab)
	const evil = `</script><img src=x onerror="window.evil=1"><script>window.evil=1</script>`
	for file, edit := range map[string]func(m map[string]any){
		"meta.json":    func(m map[string]any) { m["lab"] = evil },
		"summary.json": func(m map[string]any) { m["results"].([]any)[0].(map[string]any)["scheme"] = evil },
	} {
		name := filepath.Join(dir, file)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]any{}
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		edit(m)
		if text, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var title, rows string
	var made int
	err := chromedp.Run(ctx,
		chromedp.Navigate(watching(t, dir)), until(`document.getElementById("status").textContent === "a run: ok"`), until(`document.getElementById("now").textContent !== ""`),
		chromedp.Text("#lab", &title), chromedp.Text("#rows", &rows), chromedp.Evaluate(`document.images.length + document.scripts.length + (window.evil ? 100 : 0)`, &made),
	)
	if err != nil {
		t.Fatal(err)
	}
	if title != evil || !strings.Contains(rows, evil) || made != 1 {
		t.Errorf("title %q, rows %q, %d images and scripts", title, rows, made)
	}
}

// TestWatchToken: without the token there is a page that says so, and no data; the policy keeps everything else out.
func TestWatchToken(t *testing.T) {
	url := watching(t, recorded(t, pausedLab))
	shell, token, _ := strings.Cut(url, "#")
	get := func(path, auth, host string) (int, string, http.Header) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shell+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if auth != "" {
			q.Header.Set("Authorization", "Bearer "+auth)
		}
		if host != "" {
			q.Host = host
		}
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close() //nolint:errcheck // it was only read
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text), r.Header
	}
	for _, c := range []struct {
		path, auth, host string
		code             int
		has              string
	}{
		{"", "", "", 200, "<svg id=\"picture\""}, {"watch.js", "", "", 200, "listen"}, {"data/stream", "", "", 403, "token"}, {"data/stream", token + "x", "", 403, "token"},
		{"data/stream", token, "evil.example", 403, "not called so"}, {"data/stream", token, "", 200, "event: film\n"}, {"data/other", token, "", 404, ""}, {"serve.go", "", "", 404, ""},
	} {
		code, text, head := get(c.path, c.auth, c.host)
		if code != c.code || !strings.Contains(text, c.has) || strings.Contains(text, token) || !strings.Contains(head.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%+v: %d %.200q %v", c, code, text, head)
		}
	}
	ctx := browser(t)
	if err := chromedp.Run(ctx, chromedp.Navigate(shell), until(`document.getElementById("status").textContent.includes("token is missing or wrong")`)); err != nil {
		t.Fatal(err)
	}
	var texts int
	if err := chromedp.Run(ctx, chromedp.Evaluate(`document.querySelectorAll("#picture *").length`, &texts)); err != nil || texts != 0 {
		t.Errorf("without the token %d parts of the picture are there, %v", texts, err)
	}
}

// TestWatchUsage: what cannot be watched is refused in a line.
func TestWatchUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		said string
	}{
		{[]string{"a", "b"}, "one lab or one run's folder"}, {[]string{"--addr", "0.0.0.0:0", "."}, "not of the loopback"}, {[]string{"--addr", "9000", "."}, "write an address and a port"},
	} {
		o := call(t, hooks{}, "", append([]string{"watch"}, c.args...)...)
		if o.code != exitUsage || o.out != "" || !strings.Contains(o.err, c.said) || strings.Count(o.err, "\n") != 1 {
			t.Errorf("%v: %+v", c.args, o)
		}
	}
}

// TestWatchGoesOn: a run in progress is shown as far as its files are written, again when they have grown, and for the
// last time when it has ended.
func TestWatchGoesOn(t *testing.T) {
	dir := recorded(t, pausedLab)
	events := filepath.Join(dir, "events.jsonl")
	all, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plain, _, ok := strings.Cut(string(meta), ",\n  \"crc32c\"")
	if !ok {
		t.Fatalf("meta.json has no checksum: %s", meta)
	}
	running := strings.Replace(plain+"\n}\n", `"status": "ok"`, `"status": "running"`, 1)
	if running == plain+"\n}\n" {
		t.Fatal("the run is not ok")
	}
	for _, name := range []string{"events.jsonl", "counters.json", "summary.json", "trace.jsonl"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("meta.json", []byte(regexp.MustCompile(`"lab_us": [0-9.]+`).ReplaceAllString(running, `"lab_us": 0`)))
	var films []*report.Film
	err = watch.Run(dir)(t.Context(), func(event string, data any) error {
		f, ok := data.(*report.Film)
		if !ok {
			return nil
		}
		switch films = append(films, f); len(films) {
		case 1:
			put("events.jsonl", all[:len(all)/2]) // the last line is cut short
		case 2:
			put("events.jsonl", all)
			put("meta.json", meta)
		}
		return nil
	})
	if err != nil || len(films) != 3 {
		t.Fatalf("%d films, %v", len(films), err)
	}
	pauses := func(f *report.Film) (n int) {
		for i := range f.Frames {
			n += len(f.Frames[i].Pause)
		}
		return n
	}
	end := func(f *report.Film) float64 { return f.Frames[len(f.Frames)-1].To }
	if end(films[0]) != 0 || pauses(films[0]) > 0 || end(films[1]) <= 0 || end(films[2]) <= end(films[1]) || pauses(films[2]) == 0 ||
		films[1].Status != runner.StatusRunning || films[2].Status != runner.StatusOK {
		t.Errorf("ends %v, %v, %v us; %d pauses at the end; %s", end(films[0]), end(films[1]), end(films[2]), pauses(films[2]), films[2].Status)
	}
	put("meta.json", []byte(strings.Replace(running, `"status": "running"`, `"status": "running", "locked": true`, 1)))
	films = nil
	err = watch.Run(dir)(t.Context(), func(_ string, data any) error { films = append(films, data.(*report.Film)); return nil })
	if err != nil || len(films) != 1 || films[0].Status != runner.StatusKilled {
		t.Errorf("of a run that was killed: %d films, %v", len(films), err)
	}
}

// TestWatchUntraced: of a run without a trace the load of each link over the whole run is shown, and said to be that.
func TestWatchUntraced(t *testing.T) {
	ctx := browser(t)
	var told, notes string
	err := chromedp.Run(ctx,
		chromedp.Navigate(watching(t, recorded(t, strings.Replace(pausedLab, "trace: messages\n", "", 1)))), until(`document.getElementById("now").textContent !== ""`),
		until(`!`+wayClass("leaf0:3>h3:0")+`.includes("s0")`), chromedp.SendKeys("#find", "leaf0:3>h3:0\n"),
		until(`document.getElementById("what").textContent === "leaf0:3>h3:0"`), chromedp.Text("#detail", &told), chromedp.Text("#notes", &notes),
	)
	if err != nil || !strings.Contains(told, "% of the run") || !strings.Contains(notes, "over the whole run") {
		t.Errorf("it says %q and %q, %v", told, notes, err)
	}
}
