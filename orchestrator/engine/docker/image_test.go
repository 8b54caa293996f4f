// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"slices"
	"testing"

	"github.com/docker/docker/api/types/image"
)

// TestOldImages: the image of this build and the newest other one stay, in whichever order the engine lists them.
func TestOldImages(t *testing.T) {
	of := func(tag string, created int64) image.Summary {
		return image.Summary{Created: created, Labels: map[string]string{labelImage: tag}}
	}
	for _, c := range []struct {
		all  []image.Summary
		want []string
	}{
		{nil, nil},
		{[]image.Summary{of("now", 9)}, nil},
		{[]image.Summary{of("a", 1), of("now", 9)}, nil},
		{[]image.Summary{of("a", 1), of("b", 3), of("now", 2), of("c", 2)}, []string{"c", "a"}},
		{[]image.Summary{of("a", 1), of("b", 1)}, []string{"b"}},
	} {
		if got := oldImages(c.all, "now"); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.all, got, c.want)
		}
	}
}
