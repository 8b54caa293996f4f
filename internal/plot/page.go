// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"html"
	"strings"
)

// PageWidth is the width of a picture of a page, in its own units. Such a picture does not stand for itself: its
// classes take the page's style.
const PageWidth = 960

// openPage begins a picture of a page with its title.
func openPage(b *strings.Builder, height int, title string) {
	openNamed(b, height, title, title)
}

// openNamed begins a picture with an accessible name, for screen readers, and a title.
func openNamed(b *strings.Builder, height int, name, title string) {
	fmt.Fprintf(b, `<svg class="topo" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", PageWidth, height, html.EscapeString(name))
	fmt.Fprintf(b, `<text x="4" y="16" font-weight="600">%s</text>`+"\n", html.EscapeString(title))
}

// Figure returns a value with three digits.
func Figure(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
