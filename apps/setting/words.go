package setting

import (
	"fmt"
	"reflect"
	"slices"
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

// Suggest names the word nearest to a misspelt one, or all there are if they are few.
func Suggest(got string, words []string) string {
	best, dist := "", 3
	for _, w := range words {
		if d := distance(got, w); d < dist && d < len(w) {
			best, dist = w, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf(", did you mean %q?", best)
	case len(words) > 0 && len(words) <= 12:
		return ": use " + List(words)
	}
	return ""
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
