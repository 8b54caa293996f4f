// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/mcastlab/mcastlab/internal/failpoint"
)

// hostRepository is the name of the images that the daemon of `mcastlab servers` runs from.
const hostRepository = "mcastlab-host"

// labelHost marks them. It is not labelImage: what a lab needs on one server can go while the daemon runs.
const labelHost = "mcastlab.host-image"

// Connect reaches the engine that the environment names, or the usual one, for what no other runtime can do.
func Connect(ctx context.Context) (*client.Client, error) { return reach(ctx, "start it") }

// HostArchive returns the image of the daemon of `mcastlab servers`, as docker load takes it, and its tag. The same program makes
// the same archive on every server, so that all have the image under one ID: a Swarm's service that names that needs no registry.
func HostArchive() (tag string, archive []byte, err error) {
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = static(self)
	}
	if err == nil {
		tag, archive, err = hostArchive(self, runtime.GOARCH)
	}
	if err != nil {
		return "", nil, fmt.Errorf("make image: %w", err)
	}
	return tag, archive, nil
}

// hostArchive is HostArchive for a program: an image of one layer, whose configuration has no date (the layout is that of the
// Docker Image Specification v1.2, manifest.json).
func hostArchive(program []byte, arch string) (tag string, archive []byte, err error) {
	sum := sha256.Sum256(program)
	tag = hostRepository + ":" + hex.EncodeToString(sum[:8])
	layers, err := rootFS(program)
	if err != nil {
		return "", nil, err
	}
	layer, err := io.ReadAll(layers)
	if err != nil {
		return "", nil, err
	}
	const noDate = "1970-01-01T00:00:00Z"
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux", "created": noDate,
		"config":  map[string]any{"Entrypoint": []string{"/mcastlab"}, "Labels": map[string]string{labelHost: tag}},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
		"history": []any{map[string]string{"created": noDate, "created_by": "mcastlab"}},
	})
	if err != nil {
		return "", nil, err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]any{map[string]any{"Config": configName, "RepoTags": []string{tag}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		body []byte
	}{{"layer.tar", layer}, {configName, config}, {"manifest.json", manifest}} {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.body))}); err != nil {
			return "", nil, err
		}
		if _, err := t.Write(f.body); err != nil {
			return "", nil, err
		}
	}
	return tag, b.Bytes(), t.Close()
}

// EnsureHostImage gives an engine the image of this program's daemon if it has none, and returns its ID.
func EnsureHostImage(ctx context.Context, c *client.Client) (id string, err error) {
	tag, archive, err := HostArchive()
	if err != nil {
		return "", err
	}
	have, err := c.ImageInspect(ctx, tag)
	if err == nil && have.Config != nil && have.Config.Labels[labelHost] == tag {
		return have.ID, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return "", fmt.Errorf("look for image %s: %w", tag, err)
	}
	err = failpoint.At("load image", func() error {
		r, err := c.ImageLoad(ctx, bytes.NewReader(archive))
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r.Body) // it is there when its progress has been read
		return errors.Join(err, r.Body.Close())
	})
	if err == nil {
		have, err = c.ImageInspect(ctx, tag)
	}
	if err != nil {
		return "", fmt.Errorf("load image %s: %w", tag, err)
	}
	return have.ID, nil
}

// RemoveHostImages removes an engine's images of such daemons, those of other versions too, and returns their tags.
func RemoveHostImages(ctx context.Context, c *client.Client) (tags []string, err error) {
	all, err := c.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelHost))})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	for _, i := range all {
		tag := i.Labels[labelHost]
		err := failpoint.At("remove host image", func() error {
			_, err := c.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true}) // under all of its names; one in use stays
			return err
		})
		if err != nil && !errdefs.IsNotFound(err) {
			return tags, fmt.Errorf("remove image %s: %w", tag, err)
		}
		tags = append(tags, tag)
	}
	return tags, nil
}
