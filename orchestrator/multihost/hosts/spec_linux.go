// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/swarm"
)

// Names of the objects that `servers` makes in a Swarm. The daemon is one global service; the two others are jobs, which run once on each server
// while `servers up` or `servers down` waits for them.
const (
	serviceName = "mcastlab-host"
	joinName    = "mcastlab-host-join"
	leaveName   = "mcastlab-host-leave"
	secretName  = "mcastlab-host-join-token"
)

// Labels of it.
const (
	labelPart = "mcastlab.hosts" // part of what: the name above
	labelPort = "mcastlab.port"
	labelSpec = "mcastlab.spec" // hash of a service's specification
)

// TokenFile is the path of the token of a server that joins.
const TokenFile = "/join-token"

// runFolder has the engine's socket, and the folders of labs and of the server's credentials under the names that they have on the
// server itself.
const runFolder = "/run"

// daemonSpec is the service of the daemons.
func daemonSpec(image string, port int) swarm.ServiceSpec {
	s := spec(serviceName, image, port, []string{"host", "--port", strconv.Itoa(port), "--image", image})
	s.Mode.Global = &swarm.GlobalService{}
	again := time.Second
	s.TaskTemplate.RestartPolicy = &swarm.RestartPolicy{Condition: swarm.RestartPolicyConditionAny, Delay: &again}
	s.UpdateConfig = &swarm.UpdateConfig{Parallelism: 0, Order: swarm.UpdateOrderStopFirst, FailureAction: swarm.UpdateFailureActionContinue}
	return sealed(s)
}

// joinSpec is the job that brings servers their certificates.
func joinSpec(image string, port int, secret string, nodes []string) swarm.ServiceSpec {
	s := job(joinName, image, port, []string{"host", "--port", strconv.Itoa(port), "--join", strings.Join(nodes, ",")})
	s.TaskTemplate.ContainerSpec.Secrets = []*swarm.SecretReference{{
		SecretID: secret, SecretName: secretName, File: &swarm.SecretReferenceFileTarget{Name: TokenFile, UID: "0", GID: "0", Mode: 0o400},
	}}
	return sealed(s)
}

// leaveSpec is the job that takes them away.
func leaveSpec(image string, port int) swarm.ServiceSpec {
	return sealed(job(leaveName, image, port, []string{"host", "--leave"}))
}

// job is a service that runs once on each server. It is not one of the mode global-job: engine 20.10 still had the containers of
// such a job 15 s after that had been removed.
func job(name, image string, port int, args []string) swarm.ServiceSpec {
	s := spec(name, image, port, args)
	s.Mode.Global = &swarm.GlobalService{}
	s.TaskTemplate.RestartPolicy = &swarm.RestartPolicy{Condition: swarm.RestartPolicyConditionNone}
	return s
}

// spec returns the common part of all three: no capability, no privilege, no network but the server's own, nothing writable but
// its /run. As root that is enough: credentials are its own files. A process with the engine's socket has in effect root on the
// server; the certificates keep others from using it.
func spec(name, image string, port int, args []string) swarm.ServiceSpec {
	limit := swarm.Limit{MemoryBytes: 512 << 20, Pids: 128}
	return swarm.ServiceSpec{
		Annotations: swarm.Annotations{Name: name, Labels: map[string]string{labelPart: name, labelPort: strconv.Itoa(port)}},
		TaskTemplate: swarm.TaskSpec{
			ContainerSpec: &swarm.ContainerSpec{
				Image: image, Args: args, Labels: map[string]string{labelPart: name},
				Env:  []string{"MCASTLAB_HOST_NODE={{.Node.ID}}", "DOCKER_HOST=unix://" + runFolder + "/docker.sock"},
				User: "0:0", ReadOnly: true, CapabilityDrop: []string{"ALL"},
				Mounts: []mount.Mount{{Type: mount.TypeBind, Source: runFolder, Target: runFolder}},
			},
			Resources: &swarm.ResourceRequirements{Limits: &limit},
			Networks:  []swarm.NetworkAttachmentConfig{{Target: "host"}},
			LogDriver: &swarm.Driver{Name: "json-file", Options: map[string]string{"max-size": "1m", "max-file": "2"}},
		},
	}
}

// sealed writes the hash of a specification into its labels: the Swarm fills in what is left out, so that two cannot be compared.
func sealed(s swarm.ServiceSpec) swarm.ServiceSpec {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("a specification cannot be encoded: %v", err)) // it has maps of strings, numbers and texts
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(text))[:16]
	s.Labels[labelSpec] = hash
	s.TaskTemplate.ContainerSpec.Labels[labelSpec] = hash
	return s
}
