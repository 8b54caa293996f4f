// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// Schema names the format of reproduction.json.
const Schema = "mcastlab/reproduction/v1"

// Figures is the content of reproduction.json: the measurement of each line, for programs and for a
// later comparison to the digit.
type Figures struct {
	Schema  string       `json:"schema"`
	Results []FigureLine `json:"lines"`
}

// FigureLine is a line of reproduction.json.
type FigureLine struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	From  string   `json:"from"` // the lab or the computation
	Basis string   `json:"basis"`
	Got   *float64 `json:"got"` // null: the lab was not run
	OK    bool     `json:"in_band"`
	// Beside is the reason why the line does not count.
	Beside string `json:"beside,omitempty"`
}

// Collect returns the measurements of the lines of outcomes.
func Collect(all []Outcome) *Figures {
	f := &Figures{Schema: Schema, Results: []FigureLine{}}
	for i := range all {
		for k := range all[i].Lines {
			l := &all[i].Lines[k]
			x := FigureLine{ID: all[i].ID, Name: l.Name, From: l.from(), Basis: l.Basis, OK: l.OK, Beside: l.Beside}
			if got := l.Got; !math.IsNaN(got) {
				x.Got = &got
			}
			f.Results = append(f.Results, x)
		}
	}
	return f
}

// Write writes the pages, the figures with their points, and the measurements as JSON into a folder, and
// returns the name of the page.
func Write(dir string, all []Outcome, measured Labs) (page string, err error) {
	figures := filepath.Join(dir, "figures")
	if err := os.MkdirAll(figures, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of the figures: %w", err)
	}
	pictures := map[string]string{}
	for i := range all {
		for k := range all[i].Figures {
			f := &all[i].Figures[k]
			p, _ := f.Gather(measured)
			svg := p.SVG()
			pictures[f.Name] = svg
			if err := os.WriteFile(filepath.Join(figures, f.Name+".svg"), []byte(svg), 0o644); err != nil {
				return "", err
			}
			if err := os.WriteFile(filepath.Join(figures, f.Name+".csv"), []byte(p.CSV()), 0o644); err != nil {
				return "", err
			}
		}
	}
	b, err := json.MarshalIndent(Collect(all), "", "  ")
	if err != nil {
		return "", err
	}
	page = filepath.Join(dir, "reproduction.html")
	for name, text := range map[string]string{
		page:                                    HTML(all, pictures),
		filepath.Join(dir, "reproduction.md"):   Markdown(all, Place{Figures: "figures", Made: "This page is made by `mcastlab reproduce`."}),
		filepath.Join(dir, "reproduction.json"): string(b) + "\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return page, nil
}
