// SPDX-License-Identifier: Apache-2.0

package bugbank

import "github.com/mcastlab/mcastlab/internal/test/patch"

var lifecycle = []pitfall{
	{
		number: 1, what: "A link is born in the host's namespace and moved: a crash in between leaves it there, without an owner",
		seen: "containerlab, links/link_veth.go; clabernetes#287",
		bugs: []bug{{
			wrong: "Both ends are made in the host's namespace, and one is moved to its node",
			edits: edit("drivers/netdev/netdev_linux.go", "\tif err := a.NS.nl.LinkAdd(veth); err != nil {\n",
				"\terr := netlink.LinkAdd(veth)\n\tif err == nil {\n\t\tvar l netlink.Link\n\t\tif l, err = netlink.LinkByName(a.Name()); err == nil {\n\t\t\terr = netlink.LinkSetNsFd(l, int(a.NS.fd))\n\t\t}\n\t}\n\tif err != nil {\n"),
			test: "drivers/netdev TestJoin", root: true,
		}},
	},
	{
		number: 2, what: "What was made and is not yet written down is lost at a crash",
		seen: "libnetwork#1850",
		bugs: []bug{{
			wrong: "The state is written when the nodes are started",
			edits: []patch.Edit{
				{File: "orchestrator/deploy.go", Old: "\tif err := d.Store.put(st); err != nil {\n\t\treturn err\n\t}\n\tmade, err := ", New: "\tmade, err := "},
				{File: "orchestrator/deploy.go", Old: "\tbegin := time.Now()\n\tif err := agentCallsOf", New: "\tif err := d.Store.put(st); err != nil {\n\t\treturn err\n\t}\n\tbegin := time.Now()\n\tif err := agentCallsOf"},
			},
			test: "orchestrator TestStateFirst", root: true,
		}},
	},
	{
		number: 3, what: "Networks of the engine that leak interfaces, and whose bridge is full at 1,023 ports",
		seen: "for-linux#109, moby#12239, #14718 and #22397, libnetwork#984",
		bugs: []bug{{
			wrong: "Nodes are in the engine's own network",
			edits: edit("orchestrator/engine/docker/docker.go", `NetworkMode: "none",`, `NetworkMode: "bridge",`),
			test:  "orchestrator/engine/docker TestCreateRequest",
		}},
	},
	{
		number: 4, what: "Where no node is left there is nothing to destroy, and the rest stays for ever",
		seen: "containerlab#1306",
		bugs: []bug{{
			wrong: "A lab is there if it has nodes",
			edits: edit("orchestrator/destroy.go", "\texisted = statErr == nil\n", "\texisted = statErr == nil && false\n"),
			test:  "orchestrator TestDestroyTrouble", root: true,
		}},
	},
	{
		number: 5, what: "A lab is destroyed by its file, which has been edited, or has gone, or never described what is there",
		seen: "containerlab#2892, #1978 and #1444",
		bugs: []bug{{
			wrong: "A lab that cannot be read is not destroyed",
			edits: edit("orchestrator/destroy.go", "\tlate := false\n", "\tif _, err := s.deployed(&state{}); err != nil {\n\t\treturn err\n\t}\n\tlate := false\n"),
			test:  "orchestrator TestDestroyTrouble", root: true,
		}, {
			wrong: "A lab whose state was not written to its end is not destroyed",
			edits: edit("orchestrator/destroy.go", "\tlate := false\n", "\tif _, _, err := s.Get(); err != nil {\n\t\treturn err\n\t}\n\tlate := false\n"),
			test:  "orchestrator TestDestroyTrouble", root: true,
		}},
	},
	{
		number: 6, what: "Cleaning takes the folder of another lab, and its own error gets lost",
		seen: "containerlab, core/destroy.go",
		bugs: []bug{{
			wrong: "Every folder goes whose name begins like the lab's",
			edits: edit("orchestrator/store.go", "\tif err := failpoint.At(\"remove state\"", "\tnear, _ := filepath.Glob(s.Dir + \"*\")\n\tfor _, dir := range near {\n\t\t_ = os.RemoveAll(dir)\n\t}\n\tif err := failpoint.At(\"remove state\""),
			test:  "orchestrator TestDestroyTrouble", root: true,
		}, {
			wrong: "The lock is given back without a mistake, so there was none",
			edits: edit("orchestrator/destroy.go", "\treturn true, errors.Join(remove(ctx, s, engines), s.close())\n", "\t_ = remove(ctx, s, engines)\n\treturn true, s.close()\n"),
			test:  "orchestrator TestDestroyTrouble", root: true,
		}},
	},
	{
		number: 7, what: "A command that only looks, or is interrupted, tears down what it did not make",
		seen: "containerlab#2832 and #2775",
		bugs: []bug{{
			wrong: "A deployment that is refused takes the lab down that is up under the name",
			edits: edit("orchestrator/deploy.go", "\tup, err := d.isUp(ctx)\n\tif err != nil {\n\t\treturn Unchanged, err\n", "\tup, err := d.isUp(ctx)\n\tif err != nil {\n\t\treturn Unchanged, errors.Join(err, d.takeDown(ctx))\n"),
			test:  "orchestrator TestUpStays", root: true,
		}, {
			wrong: "One that is interrupted before it has done anything does so",
			edits: edit("orchestrator/deploy.go", "\t\tif _, ok, serr := d.Store.Get(); !ok && serr == nil {\n\t\t\terr = errors.Join(err, d.Store.Remove())\n\t\t}\n", "\t\terr = errors.Join(err, d.Store.Remove())\n"),
			test:  "orchestrator TestUpStays", root: true,
		}},
	},
	{
		number: 8, what: "What stands beside the nodes has no owner's mark and is left behind; networks of two labs clash",
		seen: "containerlab#2637, #2578, #2785, #2786, #1069 and #1169",
		bugs: []bug{{
			wrong: "Volumes say which node they are of, and not which lab",
			edits: edit("orchestrator/engine/docker/docker.go", "VolumeOptions: &mount.VolumeOptions{Labels: map[string]string{labelLab: lab, labelNode: n.Name}},", "VolumeOptions: &mount.VolumeOptions{Labels: map[string]string{labelNode: n.Name}},"),
			test:  "orchestrator/engine/docker TestVolume",
		}},
	},
	{
		number: 9, what: "Links that outlive their node keep its successor from having any",
		seen: "containerlab#842, moby#17217, #33156 and #23302",
		bugs: []bug{{
			wrong: "What is left of a link is not removed before it is made again",
			edits: edit("drivers/netdev/netdev_linux.go", "\tif err == nil {\n\t\terr = n.nl.LinkDel(l)\n\t}\n", "\tif err == nil && l.Attrs().Flags&net.FlagUp != 0 {\n\t\terr = n.nl.LinkDel(l)\n\t}\n"),
			test:  "drivers/netdev TestPart", root: true,
		}},
	},
	{
		number: 10, what: "What does not go away is waited for without end",
		seen: "moby#5618",
		bugs: []bug{{
			wrong: "A node that was killed and whose exit status nobody takes has not ended",
			edits: edit("orchestrator/engine/process/process_linux.go", "return ok && len(after) > 0 && (after[0] == 'Z' || after[0] == 'X')", "return ok && len(after) == 0"),
			test:  "orchestrator/engine/process TestEnded",
		}, {
			wrong: "Faults that come again and again keep a simulation going that has nothing else to do",
			edits: edit("drivers/window/verdict.go", "case c.Waiting == 0 && !c.Registering && !c.Open && frames == 0:", "case false:"),
			test:  "drivers/sim TestNobodyLeft",
		}},
	},
	{
		number: 11, what: "An interface has 15 characters, and two names are alike in the first 15",
		seen: "netlab#2570 and #572, ubridge#15, mininet#1117",
		bugs: []bug{{
			wrong: "Interfaces have their full names, cut off",
			edits: edit("drivers/netdev/netdev_linux.go", `return fmt.Sprintf("p%d", e.Port)`, `return fmt.Sprintf("%.15s", e.Alias)`),
			test:  "drivers/netdev TestNames",
		}},
	},
	{number: 12, what: "VXLAN devices of a lab before this one", seen: "libnetwork#1765, clabernetes#220", not: "the devices of a lab over several machines have numbers that are drawn for each deployment, and are in its nodes"},
	{
		number: 13, what: "A link that carries less than a packet drops it, or cuts it up, and nobody says so",
		seen: "RFC 7348, netlab#1985",
		bugs: []bug{{
			wrong: "Interfaces carry what Ethernet usually does",
			edits: edit("drivers/netdev/netdev_linux.go", "const MTU = 4200", "const MTU = 1500"),
			test:  "drivers/netdev TestMTU",
		}},
	},
	{number: 14, what: "Linux bridges forward no pause frames", seen: "wemulate#91, netlab#1582", not: "there are no bridges: every link is a veth pair between two nodes"},
	{
		number: 15, what: "The kernel hands 64 KB over for one frame, with checksums still to be filled in",
		seen: "das-schiff#174 and #287, VPP#2438",
		bugs: []bug{{
			wrong: "Interfaces are left as they are made",
			edits: edit("drivers/netdev/offload_linux.go", "\tif len(want) == 0 {\n", "\tif len(want) > 0 {\n"),
			test:  "drivers/netdev TestSockets", root: true,
		}},
	},
	{
		number: 16, what: "Docker's firewall drops what a bridge forwards", seen: "moby#39439, lxd#8716",
		not: "nothing of a lab passes the host's network: frames go from raw socket to raw socket",
	},
	{
		number: 17, what: "A list that changed while the kernel wrote it down lacks what is there, and what it lacks is cleaned up",
		seen: "netlink#1018, moby#48598",
		bugs: []bug{{
			wrong: "What the kernel could not finish is taken for the whole",
			edits: edit("drivers/netdev/netdev_linux.go", "!errors.Is(err, netlink.ErrDumpInterrupted) {\n\t\t\treturn all, err", "true {\n\t\t\treturn all, nil"),
			test:  "drivers/netdev TestWhole",
		}},
	},
	{
		number: 18, what: "A goroutine changes its network namespace and continues on another thread, or leaves the thread to others",
		seen: "netns#17 and #75, cni#183, Go#28979 and #34031",
		bugs: []bug{{
			wrong: "The thread that opens sockets stays in the node's namespace",
			edits: edit("drivers/netdev/netdev_linux.go", "\terr = ns.WithNetNSPath(n.path, func(ns.NetNS) error {\n", "\terr = func(f func(ns.NetNS) error) error {\n\t\tif err := netns.Set(n.fd); err != nil {\n\t\t\treturn err\n\t\t}\n\t\treturn f(nil)\n\t}(func(ns.NetNS) error {\n"),
			test:  "drivers/netdev TestSockets", root: true,
		}},
	},
	{
		number: 19, what: "The namespace of a process that has gone is looked for under its number, which another has now",
		bugs: []bug{{
			wrong: "A namespace that is open is found by the number of its process all the same",
			edits: edit("drivers/netdev/netdev_linux.go", `path: fmt.Sprintf("/proc/self/fd/%d", int(fd))}`, `path: path}`),
			test:  "drivers/netdev TestHeld", root: true,
		}, {
			wrong: "A namespace counts as that of whatever process has the number",
			edits: edit("drivers/netdev/netdev_linux.go", "return n.fd.Equal(other)", "return other.IsOpen()"),
			test:  "drivers/netdev TestHeld", root: true,
		}},
	},
	{
		number: 20, what: "Leases are forgotten, or never given back",
		seen: "containernetworking/plugins#252 and #1196, kubernetes#108121, cni#204",
		bugs: []bug{{
			wrong: "Which McstIDs have been used is known to the command that used them",
			edits: edit("orchestrator/leases.go", "return st.Leased, l.Store.put(st)", "return st.Leased, nil"),
			test:  "orchestrator TestLeases",
		}, {
			wrong: "When all McstIDs are used the first come again",
			edits: edit("orchestrator/leases.go", "case st.Leased >= LeasesMax:", "case st.Leased >= 2*LeasesMax:"),
			test:  "orchestrator TestLeases",
		}},
	},
	{
		number: 21, what: "Cleaning takes what is a neighbour's",
		seen: "multus, commit 4064866",
		bugs: []bug{{
			wrong: "A lab has all nodes whose mark begins with its name",
			edits: edit("orchestrator/engine/process/process_linux.go", "if p.lab != lab || len(nodes) > 0", "if !strings.HasPrefix(p.lab, lab) || len(nodes) > 0"),
			test:  "orchestrator/engine/process TestRemove", root: true,
		}},
	},
}
