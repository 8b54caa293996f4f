// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
)

// TestHostArchive: the same program makes the same archive, byte for byte, and another one another. What its manifest names is
// there, and is what its hashes say.
func TestHostArchive(t *testing.T) {
	tag, a, err := hostArchive([]byte("program"), "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if _, b, err := hostArchive([]byte("program"), "amd64"); err != nil || !bytes.Equal(a, b) {
		t.Errorf("twice is not the same, %v", err)
	}
	if other, b, err := hostArchive([]byte("Program"), "amd64"); err != nil || bytes.Equal(a, b) || other == tag {
		t.Errorf("another program has the tag %s, %v", other, err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(a)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || len(manifest) != 1 || len(manifest[0].Layers) != 1 || len(files) != 3 {
		t.Fatalf("%s, %d files, %v", files["manifest.json"], len(files), err)
	}
	m := manifest[0]
	if len(m.RepoTags) != 1 || m.RepoTags[0] != tag || m.Config != fmt.Sprintf("%x.json", sha256.Sum256(files[m.Config])) {
		t.Errorf("%+v", m)
	}
	var config struct {
		Architecture, OS string
		Config           struct {
			Entrypoint []string
			Labels     map[string]string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[m.Config], &config); err != nil {
		t.Fatal(err)
	}
	layer := files[m.Layers[0]]
	if config.Architecture != "amd64" || config.OS != "linux" || len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != fmt.Sprintf("sha256:%x", sha256.Sum256(layer)) {
		t.Errorf("%+v", config)
	}
	if e := config.Config.Entrypoint; len(e) != 1 || e[0] != "/mcastlab" || config.Config.Labels[labelHost] != tag || config.Config.Labels[labelImage] != "" {
		t.Errorf("%+v", config.Config)
	}
	if !bytes.Contains(layer, []byte("program")) {
		t.Error("the program is not in the layer")
	}
}
