// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// mountPoint is the path of a node's directory in its container.
const mountPoint = "/node"

// repository is the name of our images; the tag is what is in them.
const repository = "mcastlab"

// labelImage marks images that this program made.
const labelImage = "mcastlab.image"

// ensureImage returns the image that holds this program alone, and makes it if there is none.
func ensureImage(ctx context.Context, c *client.Client, intend func(effect, object string) error) (string, error) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("make image: %w", err)
	}
	if err := static(self); err != nil {
		return "", fmt.Errorf("make image: %w", err)
	}
	sum := sha256.Sum256(self)
	ref := repository + ":" + hex.EncodeToString(sum[:8])
	have, err := c.ImageInspect(ctx, ref)
	if err == nil && have.Config != nil && have.Config.Labels[labelImage] == ref {
		return ref, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return "", fmt.Errorf("look for image %s: %w", ref, err)
	}
	if err := intend("image", ref); err != nil {
		return "", err
	}
	root, err := rootFS(self)
	if err != nil {
		return "", fmt.Errorf("make image %s: %w", ref, err)
	}
	err = failpoint.At("make image", func() error {
		r, err := c.ImageImport(ctx, image.ImportSource{Source: root, SourceName: "-"}, ref, image.ImportOptions{
			Changes: []string{`ENTRYPOINT ["/mcastlab"]`, "LABEL " + labelImage + "=" + ref},
		})
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r) // it is made when its progress has been read
		return errors.Join(err, r.Close())
	})
	if err != nil {
		return "", fmt.Errorf("make image %s: %w", ref, err)
	}
	removeOldImages(ctx, c, ref)
	return ref, nil
}

// removeOldImages removes the images of earlier builds, but for the newest of them and those that a container uses.
// Nobody else does: each build makes one of 58 MB. An image that the engine does not remove stays for wipe.
func removeOldImages(ctx context.Context, c *client.Client, but string) {
	all, err := c.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelImage))})
	if err != nil {
		return
	}
	for _, ref := range oldImages(all, but) {
		_, _ = c.ImageRemove(ctx, ref, image.RemoveOptions{})
	}
}

// oldImages returns the tags of all images but one and, of the others, the newest.
func oldImages(all []image.Summary, but string) (refs []string) {
	slices.SortStableFunc(all, func(a, b image.Summary) int { return cmp.Compare(b.Created, a.Created) })
	for _, i := range all {
		if ref := i.Labels[labelImage]; ref != but {
			refs = append(refs, ref)
		}
	}
	return refs[min(1, len(refs)):]
}

// static says that a program needs no other file to run.
func static(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("this program is dynamically linked, and its containers hold no libraries: build it with CGO_ENABLED=0, or make build")
		}
	}
	return nil
}

// rootFS is the whole file system of a node.
func rootFS(program []byte) (io.Reader, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "node/", Typeflag: tar.TypeDir, Mode: 0o755},
		// A new volume takes its owner from here.
		{Name: "data/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: engine.UID, Gid: engine.UID},
		{Name: "mcastlab", Typeflag: tar.TypeReg, Mode: 0o555, Size: int64(len(program))},
	} {
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
	}
	if _, err := t.Write(program); err != nil {
		return nil, err
	}
	return &b, t.Close()
}

// Images returns our images.
func Images(ctx context.Context) (refs []string, err error) {
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing is under way
	all, err := c.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelImage))})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	for _, i := range all {
		refs = append(refs, i.Labels[labelImage])
	}
	return refs, nil
}

// RemoveImage removes an image that this program made.
func RemoveImage(ctx context.Context, ref string) error {
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is under way
	if _, err := c.ImageRemove(ctx, ref, image.RemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove image %s: %w", ref, err)
	}
	return nil
}
