// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/examples/papers"
)

// indexed is a figure with the result that it is of.
type indexed struct {
	name, title string
	of          *Outcome
}

var figureNumber = regexp.MustCompile(`, Fig\. (\d+)`)

// index returns the figures by paper and number; those that have none are last.
func index(all []Outcome) (list []indexed) {
	papers := map[*Paper]int{}
	for i := range all {
		o := &all[i]
		if _, known := papers[o.Paper]; !known {
			papers[o.Paper] = len(papers)
		}
		for k := range o.Figures {
			list = append(list, indexed{o.Figures[k].Name, o.Figures[k].Title, o})
		}
	}
	number := func(x indexed) int {
		if m := figureNumber.FindStringSubmatch(x.title); m != nil {
			n, _ := strconv.Atoi(m[1]) // it is digits
			return n
		}
		return 1000
	}
	slices.SortStableFunc(list, func(a, b indexed) int {
		return cmp.Or(cmp.Compare(papers[a.of.Paper], papers[b.of.Paper]), cmp.Compare(number(a), number(b)))
	})
	return list
}

// anchor is that of the result's heading in Markdown.
func anchor(o *Outcome) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z':
			return r
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(o.ID+": "+o.Title))
}

// settingNames are the keys of a lab file that the page has of each lab.
var settingNames = []string{"topology", "links", "switches", "nics", "seed"}

// setting holds a lab file's values of these keys, as the file writes them; "" where it has none.
type setting struct {
	lab    string
	values []string
}

// settings returns those of the labs that lines and figures are from.
func settings(all []Outcome) (list []setting) {
	var results []*Result
	for i := range all {
		results = append(results, all[i].Result)
	}
	for _, name := range slices.Sorted(maps.Keys(quantities(results))) {
		text, err := papers.Labs.ReadFile(name + ".mcl.yml")
		if err != nil {
			continue // of a test
		}
		x := setting{lab: name}
		for _, key := range settingNames {
			value := ""
			for line := range strings.Lines(string(text)) {
				if rest, ok := strings.CutPrefix(line, key+":"); ok {
					value = strings.TrimSpace(rest)
				}
			}
			x.values = append(x.values, value)
		}
		list = append(list, x)
	}
	return list
}
