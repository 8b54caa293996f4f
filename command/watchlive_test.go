// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestWatchLive: in a browser, a link of a running lab takes the colour of a pause that fault add causes, loses it when
// the fault is removed, and has it again when the scrubber goes back; a run's load shows, and so does a killed node.
func TestWatchLive(t *testing.T) {
	need(t, "netns")
	ctx := browser(t)
	const name, down = "watch-live", "leaf0:3>h3:0"
	file := write(t, "name: "+name+"\ntopology: {star: {hosts: 4}}\nworkloads: [{bcast: {schemes: [cepheus], sizes: [1MiB], iterations: 8}}]\nruntime: {clock: dilated, dilation: 4000}\n")
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", name) })
	must(t, "deploy", "-r", "netns", file)
	url := watching(t, name)
	do := func(what string, actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(ctx, actions...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	paint := func(what string) chromedp.Action {
		return chromedp.Evaluate(`{const p = document.getElementById("paint"); p.value = "`+what+`"; p.dispatchEvent(new Event("change"))}`, nil)
	}
	do("open", chromedp.Navigate(url), until(`document.getElementById("status").textContent === "a lab that is up"`), paint("pause"),
		until(`document.querySelector('[data-way="`+down+`"]') !== null`), until(`!`+wayClass(down)+`.includes("halted")`))
	id := strings.TrimSpace(must(t, "fault", "add", "--lab", name, "--node", "h3", "pause").out)
	do("pause", until(wayClass(down)+`.includes("halted s6") || `+wayClass(down)+`.includes("s6 halted")`), until(`document.querySelector("#faults .on").textContent.includes("(on)")`),
		chromedp.ActionFunc(func(ctx context.Context) error { looks(ctx, t, "live"); return nil }))
	must(t, "fault", "reset", "--lab", name, id)
	do("reset", until(`!`+wayClass(down)+`.includes("halted")`), until(`document.querySelector("#faults .on") === null`))
	do("back", chromedp.Evaluate(`(() => {
		const s = document.getElementById("scrub");
		for (let k = Number(s.max) - 1; k >= 0; k--) {
			s.value = k; s.dispatchEvent(new Event("input"));
			if (`+wayClass(down)+`.includes("halted")) return;
		}
	})()`, nil), until(wayClass(down)+`.includes("halted")`), chromedp.Click("#end"), until(`!`+wayClass(down)+`.includes("halted")`), paint("load"))
	ended := underWay(t, "run", "-q", "-r", "netns", "--runs", t.TempDir(), file)
	do("load", until(`!`+wayClass(down)+`.includes("s0")`))
	if code, said := ended(); code != exitOK && code != exitFidelity {
		t.Errorf("run: %d %s", code, said)
	}
	killNode(t, name, "h2")
	do("kill", until(`document.querySelector('[data-node="h2"]').getAttribute("class").includes("gone")`), until(`document.getElementById("now").textContent.includes("gone: h2")`))
}
