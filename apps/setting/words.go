// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// List returns words as a sentence has them: a, b or c.
func List(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Counted returns a number with its noun, in the plural unless it is 1.
func Counted(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "ch") || strings.HasSuffix(noun, "s"):
		noun += "es"
	case strings.HasSuffix(noun, "y"):
		noun = strings.TrimSuffix(noun, "y") + "ies"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Near returns the word nearest to a misspelt one, at most two letters away, or an empty string.
func Near(got string, words []string) string {
	best, dist := "", 3
	for _, w := range words {
		if d := distance(got, w); d < dist && d < len(w) {
			best, dist = w, d
		}
	}
	return best
}

// Suggest names the word nearest to a misspelt one, or all there are if they are few. Of names that differ only in a number it
// gives the range: h9 among h0 to h7 is no misspelling of h0.
func Suggest(got string, words []string) string {
	if r := numbered(got, words); r != "" {
		return ": there are " + r
	}
	switch best := Near(got, words); {
	case best != "":
		return fmt.Sprintf(", did you mean %q?", best)
	case len(words) > 0 && len(words) <= 12:
		return ": use " + List(words)
	}
	return ""
}

// numbered returns the first and the last of the words that differ from got in their number alone, or an empty string if they are
// fewer than two or some are missing between them.
func numbered(got string, words []string) string {
	stem := strings.TrimRight(got, "0123456789")
	if stem == got || stem == "" {
		return ""
	}
	var all []int
	for _, w := range words {
		digits, ok := strings.CutPrefix(w, stem)
		if n, err := strconv.Atoi(digits); ok && err == nil && strconv.Itoa(n) == digits {
			all = append(all, n)
		}
	}
	if len(all) < 2 || slices.Max(all)-slices.Min(all) != len(all)-1 {
		return ""
	}
	return fmt.Sprintf("%s%d to %s%d", stem, slices.Min(all), stem, slices.Max(all))
}

// distance is the Levenshtein distance, letters of different case being alike.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j]+cost, prev[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// FieldByKey returns the index of the field with a key of a lab file, or -1.
func FieldByKey(t reflect.Type, key string) int {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == key {
			return i
		}
	}
	return -1
}
