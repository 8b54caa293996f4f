// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/mcastlab/mcastlab/internal/failpoint"
)

// dataPoint is the path of a node's own volume, which keeps its data when it dies.
const dataPoint = "/data"

// nodesPoint is the path under which a controller has the directories of the nodes it calls.
const nodesPoint = "/nodes"

func volumeName(lab, node string) string { return containerName(lab, node) + "-data" }

// volumes returns the volumes with our labels, of one lab or of all.
func volumes(ctx context.Context, c *client.Client, lab string) ([]*volume.Volume, error) {
	label := labelLab
	if lab != "" {
		label += "=" + lab
	}
	all, err := c.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", label))})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	return all.Volumes, nil
}

// removeVolumes removes the volumes of a lab, whose containers are gone.
func removeVolumes(ctx context.Context, c *client.Client, lab string) error {
	all, err := volumes(ctx, c, lab)
	if err != nil {
		return err
	}
	return each(all, func(v *volume.Volume) error {
		err := failpoint.At("remove volume", func() error { return c.VolumeRemove(ctx, v.Name, true) })
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove volume of %s: %w", v.Labels[labelNode], err)
		}
		return nil
	})
}
