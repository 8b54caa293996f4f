// SPDX-License-Identifier: Apache-2.0

package house

import "strings"

// Labs that several keys have in common.
const (
	// incast has three flows of 100 Gb/s that meet at one port, whose queue grows to some 2.5 MB.
	incast = "topology: {star: {hosts: 4}}, workloads: [{flows: {flows: [{name: a, from: h0, to: h3, end: 100us}, {name: b, from: h1, to: h3, end: 100us}, {name: c, from: h2, to: h3, end: 100us}], interval: 50us}}]"
	// paused has a receiver that pauses its switch for 2 ms of three.
	paused = "topology: {star: {hosts: 3}}, links: {rate: 1Gbps}, nics: {timeout: infinite}, faults: [{in: run, at: 100us, for: 2ms, every: 3ms, pause: {node: h1}}], workloads: [{flows: {flows: [{name: a, from: h0, to: h1, end: 6ms}]}}]"
	// classed has packets of two priorities that meet at ports.
	classed = "workloads: [{fsdp: {schemes: [{allgather: linear, reduce-scatter: ring, reduce-class: 34}], sizes: [64KiB], iterations: 1}}]"
	// branching has a multicast whose members get other flows, too.
	branching = "topology: {star: {hosts: 6}}, nics: {congestion: dcqcn}, workloads: [{flows: {flows: [{name: a, from: h0, to: [h1, h2, h3], end: 200us}, {name: b, from: h4, to: h1, end: 200us}, {name: c, from: h5, to: h2, end: 100us}], interval: 100us}}]"
	// lost lacks the last packet of a message, so that only a timeout repairs it.
	lost = "workloads: [{bcast: {schemes: [cepheus], sizes: [64KiB], iterations: 1}}], faults: [{loss: {links: h0-*, direction: up, frames: {kind: data}, nth: [16]}}]"
	// late has a receiver that is not ready (greet).
	late    = "workloads: [{program: {name: greet}}]"
	long    = "workloads: [{bcast: {schemes: [cepheus], sizes: [1MiB], iterations: 1}}]"
	guarded = "workloads: [{bcast: {schemes: [{name: cepheus, fallback: full}], sizes: [64B]}}]"
)

// keyRuns has the keys whose examples change no run.
func keyRuns() map[string]keyRun {
	all := map[string]keyRun{}
	for _, part := range []map[string]keyRun{fileRuns(), topologyRuns(), switchRuns(), nicRuns(), workloadRuns(), applicationRuns(), benchmarkRuns(), faultRuns(), frameFaultRuns()} {
		for k, r := range part {
			all[k] = r
		}
	}
	return all
}

func fileRuns() map[string]keyRun {
	return map[string]keyRun{
		"name":         {shown: true},
		"trace":        {shown: true},
		"times":        {shown: true},
		"expect":       {shown: true},
		"sweep":        {still: "mcastlab run simulates a lab for each of its points (TestPointLab of lab/sweep), which has no sweep"},
		"controllers":  {still: "a simulation has no control plane beside the lab"},
		"hosts":        {still: "a simulation emulates external hosts as any other (TestWriting of lab/runner)"},
		"labels":       {lab: "faults: [{loss: {links: \"label:rack1\", nth: [1]}}]", value: "[{name: rack1, nodes: [h0]}]", other: "[{name: rack1, nodes: [h1]}]"},
		"labels.name":  {lab: "faults: [{loss: {links: \"label:rack1\", nth: [1]}}]", at: "labels", value: "[{name: rack1, nodes: [h0]}, {name: rack2, nodes: [h1]}]", other: "[{name: rack2, nodes: [h0]}, {name: rack1, nodes: [h1]}]"},
		"labels.nodes": {lab: "faults: [{loss: {links: \"label:rack1\", nth: [1]}}], labels: [{name: rack1}]", value: "[h0]", other: "[h1]"},
		"runtime":      {value: "{channel-delay: 3us}"},

		"runtime.dilation":   {still: "the event clock has no wall time"},
		"runtime.clock":      {still: "it chooses the driver of a lab that is up"},
		"runtime.management": {still: "programs of a simulation have no sockets"},
		"runtime.hosts":      {still: "it chooses servers of a lab that is up"},
		"runtime.links":      {still: "links between servers of a lab that is up"},
		"runtime.io":         {still: "how frames of a lab that is up cross veth pairs"},

		"links.tiers.host-leaf.rate":  {value: "25Gbps", other: "50Gbps"},
		"links.tiers.host-leaf.delay": {value: "100ns", other: "200ns"},
	}
}

func topologyRuns() map[string]keyRun {
	const (
		layers = "topology: {three-layer: {radix: 8, pods: 1, leaves: 2, hosts: 4, aggs: 2, cores: 4}}"
		spines = "topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}"
		tree   = "topology: {m-port-n-tree: {m: 4, n: 2}}"
		custom = "topology: {custom: {hosts: [h0, h1], switches: [s0, s1], links: [{ends: h0-s0}, {ends: s0-s1}, {ends: h1-s1, delay: 5us}]}}"
		few    = ", workloads: [{bcast: {schemes: [cepheus], sizes: [64B], iterations: 1}}]"
	)
	return map[string]keyRun{
		"topology.fat-tree.k":         {lab: "topology: {fat-tree: {}}", value: "2", other: "4"},
		"topology.three-layer.preset": {lab: "topology: {three-layer: {}}" + few, value: "ft1024", other: "fig2"},
		"topology.three-layer.leaves": {lab: layers, value: "1", other: "2"},
		"topology.three-layer.hosts":  {lab: layers, value: "6", other: "4"},
		"topology.three-layer.aggs":   {lab: layers, value: "4", other: "2"},
		"topology.three-layer.cores":  {lab: layers, value: "8", other: "4"},
		"topology.leaf-spine.preset":  {lab: spines, value: "ucc188", other: ""},
		"topology.leaf-spine.leaves":  {lab: spines, value: "3", other: "2"},
		"topology.leaf-spine.spines":  {lab: spines, value: "3", other: "1"},
		"topology.leaf-spine.hosts":   {lab: spines, value: "3", other: "2"},
		"topology.m-port-n-tree.m":    {lab: tree, value: "6", other: "4"},
		"topology.m-port-n-tree.n":    {lab: tree, value: "3", other: "2"},
		"topology.star.hosts":         {value: "4", other: "8"},
		"topology.star":               {at: "topology", value: "{star: {hosts: 4}}", other: "{fat-tree: {k: 4}}"},
		"topology.custom.preset":      {lab: "topology: {custom: {}}, workloads: [{bcast: {schemes: [chain], sizes: [64B]}}]", value: "figtree", other: "back-to-back"},
		"topology.custom.hosts":       {lab: custom, value: "[h0, h1]", other: "[h1, h0]"},
		"topology.custom.switches":    {lab: custom, value: "[s0, s1]", other: "[s1, s0]"},
		"topology.custom.links":       {lab: custom, value: "[h0-s0, s0-s1, h1-s1]", other: "[h0-s0, s0-s1, h1-s0]"},
		"topology.custom.links.ends":  {lab: custom, at: "topology.custom.links[0].ends", value: "h0-s0", other: "h0-s1"},
		"topology.custom.links.rate":  {lab: custom, at: "topology.custom.links[0].rate", value: "25Gbps"},
		"topology.custom.links.delay": {lab: custom, at: "topology.custom.links[0].delay", value: "5us"},
	}
}

func switchRuns() map[string]keyRun {
	return map[string]keyRun{
		"switches.buffer":      {lab: incast, value: "1MB"},
		"switches.replication": {lab: "switches: {queues: input}, workloads: [{flows: {flows: [{name: a, from: h0, to: [h1, h2], end: 50us}, {name: b, from: h3, to: h2, end: 50us}]}}]", value: "sync"},

		"switches.pfc":               {lab: incast + ", switches: {buffer: 1MB}", value: "false"},
		"switches.pfc.enabled":       {lab: incast + ", switches: {buffer: 1MB}", value: "false"},
		"switches.pfc.priorities":    {lab: incast + ", switches: {buffer: 1MB}", value: "[5]"},
		"switches.pfc.xoff":          {lab: incast, value: "100kB"},
		"switches.pfc.xon":           {lab: incast + ", switches: {pfc: {xoff: 100kB}}", value: "10kB"},
		"switches.pfc.headroom":      {lab: incast + ", switches: {pfc: {xoff: 100kB}}", value: "1kB"},
		"switches.pfc.alpha":         {lab: incast + ", switches: {buffer: 1MB}", value: "0.0625"},
		"switches.pfc.resume-offset": {lab: incast + ", switches: {buffer: 1MB, pfc: {alpha: 0.0625}}", value: "3KiB"},
		"switches.pfc.quanta":        {lab: incast + ", switches: {pfc: {xoff: 100kB}}", value: "256"},

		"switches.ecn":            {lab: incast, value: "true"},
		"switches.ecn.enabled":    {lab: incast, value: "true"},
		"switches.ecn.priorities": {lab: incast + ", switches: {ecn: {enabled: true}}", value: "[5]"},
		"switches.ecn.kmin":       {lab: incast + ", switches: {ecn: {enabled: true}}", value: "10kB"},
		"switches.ecn.kmax":       {lab: incast + ", switches: {ecn: {enabled: true}}", value: "500kB"},
		"switches.ecn.pmax":       {lab: incast + ", switches: {ecn: {enabled: true}}", value: "1"},
		"switches.ecn.on-arrival": {lab: incast + ", switches: {ecn: {enabled: true}}", value: "true"},

		"switches.watchdog":         {lab: paused, value: "{enabled: true, detect: 1ms, action: forward}"},
		"switches.watchdog.enabled": {lab: paused + ", switches: {watchdog: {detect: 1ms, action: forward}}", value: "true"},
		"switches.watchdog.detect":  {lab: paused + ", switches: {watchdog: {enabled: true, action: forward}}", value: "1ms"},
		"switches.watchdog.restore": {lab: paused + ", switches: {watchdog: {enabled: true, detect: 1ms, action: forward}}", value: "100us"},
		"switches.watchdog.action":  {lab: paused + ", switches: {watchdog: {enabled: true, detect: 1ms}}", value: "forward", ends: true},

		"switches.scheduling":         {lab: classed + ", topology: {leaf-spine: {leaves: 2, spines: 1, hosts: 4}}", value: "[1, 1, 1, 1, 1, 1, 0, 0]"},
		"switches.classes":            {lab: incast + ", switches: {buffer: 1MB}", value: "[{dscp: 26, priority: 5}]"},
		"switches.classes.dscp":       {lab: incast + ", switches: {buffer: 1MB, classes: [{priority: 5}]}", value: "26", other: "34"},
		"switches.classes.pcp":        {lab: incast + ", links: {vlan: 12}, switches: {buffer: 1MB, classes: [{priority: 5}]}", value: "3", other: "4"},
		"switches.classes.priority":   {lab: incast + ", switches: {buffer: 1MB, classes: [{dscp: 26}]}", value: "5", other: "3"},
		"switches.reconverge":         {lab: "topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 3}}, faults: [{in: run, at: 20us, link-down: {links: leaf1-spine*}, for: 50us}], workloads: [{alltoall: {schemes: [linear], sizes: [256KiB], iterations: 1}}]", value: "10us"},
		"switches.groups":             {lab: "workloads: [{flows: {flows: [{name: a, from: h0, to: [h1, h2], end: 20us}, {name: b, from: h3, to: [h4, h5], end: 20us}], interval: 10us}}]", value: "1", ends: true},
		"switches.group-memory":       {lab: guarded, value: "10B"},
		"switches.fan-out":            {lab: guarded, value: "2"},
		"switches.group-age":          {still: "workloads give all their groups back: only those that a command which was killed has left grow old (TestAge of virtswitch)"},
		"switches.cnp-filter":         {lab: branching + ", switches: {ecn: {enabled: true, kmin: 10kB}}", value: "false"},
		"switches.cnp-filter.enabled": {lab: branching + ", switches: {ecn: {enabled: true, kmin: 10kB}}", value: "false"},
		"switches.cnp-filter.window":  {lab: branching + ", switches: {ecn: {enabled: true, kmin: 10kB}}", value: "1us"},
	}
}

func nicRuns() map[string]keyRun {
	return map[string]keyRun{
		"nics":             {value: "{traffic-class: 34}"},
		"nics.mtu":         {lab: long, value: "1024"},
		"nics.ack-every":   {lab: long, value: "4"},
		"nics.window":      {lab: long, value: "16"},
		"nics.timeout":     {lab: lost, value: "67ms"},
		"nics.retries":     {lab: long + ", faults: [{at: 60us, for: 20ms, loss: {links: h0-*, rate: 100%}}]", value: "1", ends: true},
		"nics.rnr-retries": {lab: late, value: "0", ends: true},
		"nics.rnr-timer":   {lab: late, value: "10us"},

		"nics.irn":                  {lab: lost + ", nics: {retransmit: irn}", value: "{rto-low: 50us, rto-high: 60us}"},
		"nics.irn.cap":              {lab: long + ", nics: {retransmit: irn}", value: "16KiB"},
		"nics.irn.rto-low":          {lab: "nics: {retransmit: irn}, workloads: [{bcast: {schemes: [cepheus], sizes: [64B], iterations: 1}}], faults: [{loss: {links: h0-*, direction: up, frames: {kind: data}, nth: [1]}}]", value: "50us"},
		"nics.irn.rto-high":         {lab: "nics: {retransmit: irn}, workloads: [{bcast: {schemes: [cepheus], sizes: [64KiB], iterations: 1}}], faults: [{loss: {links: h0-*, direction: up, frames: {kind: data}, nth: [10, 11, 12, 13, 14, 15, 16]}}]", value: "1ms"},
		"nics.congestion":           {lab: incast + ", switches: {ecn: true}", value: "dcqcn"},
		"nics.byte-counter":         {lab: incast + ", switches: {ecn: true}, nics: {congestion: dcqcn}", value: "10kB"},
		"nics.scheduling":           {lab: classed, value: "[1, 1, 1, 1, 1, 1, 0, 0]"},
		"nics.host-cost.connection": {lab: "workloads: [{bcast: {schemes: [chain], sizes: [64B]}}]", value: "2us"},
		"nics.host-cost.jitter":     {lab: "nics: {host-cost: {post: 200ns}}", value: "50ns"},
	}
}

func workloadRuns() map[string]keyRun {
	const datagrams = "faults: [{loss: {links: h3-*, direction: down, frames: {opcode: UD_SEND_*}, nth: [3, 20]}}], workloads: [{bcast: {schemes: [{name: ud-multicast}], sizes: [64KiB]}}]"
	return map[string]keyRun{
		"workloads.program.name":      {lab: "workloads: [{program: {}}]", value: "greet", other: "idle"},
		"workloads.program.ranks":     {lab: "workloads: [{program: {name: greet}}]", value: "h1..h3"},
		"workloads.command":           {still: "programs of the server run in labs that are up"},
		"workloads.bcast.schemes":     {value: "[chain]", other: "[cepheus]"},
		"workloads.bcast.sizes":       {value: "[64B]", other: "[4KiB]"},
		"workloads.bcast.group":       {still: "a simulation emulates external hosts, which alone have to know the group"},
		"workloads.allgather.schemes": {lab: "workloads: [{allgather: {sizes: [4KiB]}}]", value: "[linear]", other: "[ring]"},
		"workloads.allgather.sizes":   {lab: "workloads: [{allgather: {schemes: [ring]}}]", value: "[64B]", other: "[4KiB]"},

		"workloads.reduce-scatter.schemes": {lab: "workloads: [{reduce-scatter: {sizes: [4KiB]}}]", value: "[in-network]", other: "[ring]"},
		"workloads.reduce-scatter.sizes":   {lab: "workloads: [{reduce-scatter: {schemes: [ring]}}]", value: "[64B]", other: "[4KiB]"},
		"workloads.alltoall.schemes":       {lab: "workloads: [{alltoall: {sizes: [4KiB]}}]", value: "[pairwise]", other: "[linear]"},
		"workloads.alltoall.sizes":         {lab: "workloads: [{alltoall: {schemes: [linear]}}]", value: "[64B]", other: "[4KiB]"},

		"workloads.bcast.schemes.name":      {lab: "workloads: [{bcast: {schemes: [{}], sizes: [64B]}}]", value: "chain", other: "cepheus"},
		"workloads.bcast.schemes.label":     {shown: true},
		"workloads.bcast.schemes.parallel":  {lab: "workloads: [{allgather: {schemes: [{name: multicast}], sizes: [64KiB]}}]", at: "workloads[0].allgather.schemes[0].parallel", value: "2"},
		"workloads.bcast.schemes.transport": {lab: "workloads: [{bcast: {schemes: [{name: unicast}], sizes: [64KiB]}}]", value: "ud"},
		"workloads.bcast.schemes.workers":   {lab: "workloads: [{bcast: {schemes: [{name: ud-multicast, engine: dpa, subgroups: 4}], sizes: [64KiB]}}]", value: "2"},
		"workloads.bcast.schemes.staging":   {lab: "workloads: [{bcast: {schemes: [{name: ud-multicast}], sizes: [256KiB]}}]", value: "8"},
		"workloads.bcast.schemes.alpha":     {lab: datagrams, value: "100us"},
		"workloads.bcast.schemes.cutoff":    {lab: datagrams, value: "before-barrier"},
	}
}

func applicationRuns() map[string]keyRun {
	const (
		both    = "workloads: [{fsdp: {schemes: [{allgather: ring, reduce-scatter: ring}], sizes: [4KiB]}}]"
		linpack = "workloads: [{hpl: {n: [256], grids: [2x2], bcast: [1ring]}}]"
		costs   = "workloads: [{hpl: {n: [256], grids: [2x2], bcast: [1ring], cost-only: true}}]"
		writes  = "workloads: [{storage: {schemes: [unicasts], bs: [4KiB], number-ios: 50}}]"
		synced  = "workloads: [{storage: {schemes: [unicasts], bs: [4KiB], number-ios: 50, durability: fsync}}]"
		crashes = "workloads: [{storage: {schemes: [unicasts], bs: [4KiB], number-ios: 50, durability: fsync, on-failure: degrade, crash: {host: h2, after: 50us}}}]"
		flow    = "workloads: [{flows: {flows: [{name: a, from: h0, to: h1, end: 100us}], message: 4KiB, interval: 50us}}]"
		many    = "topology: {m-port-n-tree: {m: 4, n: 2}}, workloads: [{many-to-many: {schemes: [cyclic], sizes: [4KiB], iterations: 3}}]"
	)
	return map[string]keyRun{
		"workloads.fsdp.schemes":                {lab: both, value: "[{allgather: linear, reduce-scatter: ring}]", other: "[{allgather: ring, reduce-scatter: ring}]"},
		"workloads.fsdp.sizes":                  {lab: both, value: "[64B]", other: "[4KiB]"},
		"workloads.fsdp.schemes.label":          {lab: both, value: "plain", shown: true},
		"workloads.fsdp.schemes.allgather":      {lab: both, value: "linear", other: "ring"},
		"workloads.fsdp.schemes.reduce-class":   {lab: both, value: "34"},
		"workloads.fsdp.schemes.reduce-scatter": {lab: both, value: "in-network", other: "ring"},

		"workloads.hpl.n":              {lab: linpack, value: "[128]", other: "[256]"},
		"workloads.hpl.grids":          {lab: linpack, value: "[1x4]", other: "[2x2]"},
		"workloads.hpl.bcast":          {lab: linpack, value: "[cepheus]", other: "[1ring]"},
		"workloads.hpl.rfact":          {shown: true},
		"workloads.hpl.threshold":      {lab: linpack, value: "0.000001", shown: true},
		"workloads.hpl.swap":           {lab: "workloads: [{hpl: {n: [256], grids: [4x2], bcast: [1ring]}}]", value: "exchange"},
		"workloads.hpl.swap-threshold": {lab: "workloads: [{hpl: {n: [256], grids: [4x2], bcast: [1ring], swap: mix}}]", value: "32"},
		"workloads.hpl.epochs":         {lab: costs, value: "2"},
		"workloads.hpl.pivots":         {lab: costs, value: "centralised"},
		"workloads.hpl.panel-roots":    {lab: costs, value: "all"},

		"workloads.storage.schemes":     {lab: writes, value: "[multicast-shared]", other: "[unicasts]"},
		"workloads.storage.bs":          {lab: writes, value: "[64KiB]", other: "[4KiB]"},
		"workloads.storage.size":        {lab: "workloads: [{storage: {schemes: [unicasts], bs: [4KiB]}}]", value: "64KiB", other: "128KiB"},
		"workloads.storage.on-failure":  {lab: synced + ", faults: [{at: 50us, nic-stall: {nodes: h2}}]", value: "degrade", ends: true},
		"workloads.storage.commit":      {lab: synced, value: "50us"},
		"workloads.storage.disk":        {lab: synced, value: "16KiB", ends: true},
		"workloads.storage.crash":       {lab: "workloads: [{storage: {schemes: [unicasts], bs: [4KiB], number-ios: 50, durability: fsync, on-failure: degrade}}]", value: "{host: h2, after: 50us}"},
		"workloads.storage.crash.host":  {lab: crashes, value: "h3", other: "h2"},
		"workloads.storage.crash.after": {lab: crashes, value: "100us", other: "50us"},

		"workloads.flows": {
			at: "workloads", value: "[{flows: {flows: [{name: a, from: h0, to: h1, end: 20us}], interval: 10us}}]", other: "[{bcast: {schemes: [cepheus], sizes: [64B]}}]",
		},
		"workloads.flows.label":       {lab: flow, value: "mix"},
		"workloads.flows.flows":       {lab: flow, value: "[{name: a, from: h0, to: h2, end: 100us}]", other: "[{name: a, from: h0, to: h1, end: 100us}]"},
		"workloads.flows.message":     {lab: flow, value: "8KiB", other: "4KiB"},
		"workloads.flows.outstanding": {lab: flow, value: "1"},
		"workloads.flows.interval":    {lab: flow, value: "10us", other: "50us", shown: true},
		"workloads.flows.memory":      {lab: flow, value: "phantom"},
		"workloads.flows.flows.name":  {lab: flow, value: "b", other: "a", shown: true},
		"workloads.flows.flows.from":  {lab: flow, value: "h2", other: "h0"},
		"workloads.flows.flows.to":    {lab: flow, value: "h2", other: "h1"},
		"workloads.flows.flows.begin": {lab: flow, value: "50us"},
		"workloads.flows.flows.end":   {lab: flow, value: "50us", other: "100us"},

		"workloads.many-to-many.groups": {
			lab: "topology: {m-port-n-tree: {m: 4, n: 2}}, workloads: [{many-to-many: {schemes: [opensm], sizes: [4KiB], iterations: 2, sources: 4, group: 4}}]", value: "per-source",
		},
		"workloads.many-to-many.schemes": {lab: many, value: "[opensm]", other: "[cyclic]"},
		"workloads.many-to-many.sizes":   {lab: many, value: "[64B]", other: "[4KiB]"},
	}
}

// benchmarkRuns has small labs for keys whose examples run for long.
func benchmarkRuns() map[string]keyRun {
	all := map[string]keyRun{}
	for key, value := range map[string]string{
		"label": "writes", "ranks": "h0..h2", "client": "h1", "iodepth": "8", "numjobs": "2", "rw": "randwrite", "number-ios": "20", "durability": "fsync",
		"submit": "2us", "copy": "500ns", "complete": "1us",
	} {
		all["workloads.storage."+key] = keyRun{lab: "workloads: [{storage: {schemes: [unicasts], bs: [4KiB], number-ios: 10}}]", value: value}
	}
	for key, value := range map[string]string{"label": "exchange", "sources": "40%", "group": "4", "iterations": "3", "memory": "phantom"} {
		all["workloads.many-to-many."+key] = keyRun{
			lab: "topology: {m-port-n-tree: {m: 4, n: 2}}, workloads: [{many-to-many: {schemes: [cyclic], sizes: [4KiB], iterations: 2}}]", value: value,
		}
	}
	for kind, schemes := range map[string]string{"allgather": "[ring]", "alltoall": "[linear]", "reduce-scatter": "[ring]", "fsdp": "[{allgather: ring, reduce-scatter: ring}]"} {
		lab := "workloads: [{" + kind + ": {schemes: " + schemes + ", sizes: [4KiB]}}]"
		for key, value := range map[string]string{"label": "first", "ranks": "[h0, h2..h3]", "iterations": "5", "warm-up": "1", "memory": "phantom", "numbers": "float32"} {
			if key != "numbers" || kind == "reduce-scatter" || kind == "fsdp" {
				all["workloads."+kind+"."+key] = keyRun{lab: lab, value: value}
			}
		}
	}
	return all
}

// message is a broadcast that survives what its group does not.
const message = "workloads: [{bcast: {schemes: [{name: cepheus, fallback: full}], sizes: [1MiB], iterations: 1}}]"

func faultRuns() map[string]keyRun {
	all := map[string]keyRun{
		"faults":             {lab: message, value: "[{loss: {nth: [5]}}]"},
		"faults.in":          {lab: "workloads: [{bcast: {schemes: [cepheus], sizes: [64B, 4KiB]}}], faults: [{loss: {links: h0-*, nth: [1]}}]", value: "run"},
		"faults.at":          {lab: message + ", faults: [{rate-cut: {rate: 10Gbps}}]", value: "20us"},
		"faults.for":         {lab: message + ", faults: [{rate-cut: {rate: 10Gbps}}]", value: "10us"},
		"faults.every":       {lab: message + ", faults: [{for: 2us, rate-cut: {rate: 10Gbps}}]", value: "5us"},
		"faults.probability": {lab: message + ", faults: [{rate-cut: {rate: 10Gbps}}]", value: "1%"},

		"faults.control-partition": {still: "controllers are of labs that are up"},
		"faults.controller-crash":  {still: "controllers are of labs that are up"},

		"faults.rate-cut.links":       {lab: message + ", faults: [{rate-cut: {rate: 10Gbps}}]", value: "h3-*"},
		"faults.rate-cut.rate":        {lab: message + ", faults: [{rate-cut: {}}]", value: "10Gbps", other: "25Gbps"},
		"faults.link-down.links":      {lab: message + ", faults: [{at: 60us, for: 20us, link-down: {}}]", value: "h3-*", other: "h2-*"},
		"faults.pause.node":           {lab: message + ", faults: [{at: 60us, for: 20us, pause: {}}]", value: "h3", other: "h2"},
		"faults.pause.priority":       {lab: message + ", faults: [{at: 60us, for: 20us, pause: {node: h3}}]", value: "5"},
		"faults.pause-storm.node":     {lab: message + ", faults: [{at: 60us, for: 20us, pause-storm: {}}]", value: "h3", other: "h2"},
		"faults.pause-storm.priority": {lab: message + ", faults: [{at: 60us, for: 20us, pause-storm: {node: h3}}]", value: "5"},
		"faults.pause-storm.gap":      {lab: message + ", faults: [{at: 60us, for: 20us, pause-storm: {node: h3}}]", value: "1us"},
		"faults.crash.nodes":          {lab: message + ", faults: [{at: 60us, for: 20us, crash: {}}]", value: "h3", other: "h2", ends: true},
		"faults.mft-full.nodes":       {lab: message + ", topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}, faults: [{mft-full: {}}]", value: "leaf0", other: "leaf1"},
		"faults.mft-full.room":        {lab: message + ", faults: [{mft-full: {nodes: leaf0}}]", value: "1"},
		"faults.slow-receiver.nodes":  {lab: message + ", faults: [{slow-receiver: {rate: 25Gbps}}]", value: "h3", other: "h2"},
		"faults.slow-receiver.rate":   {lab: message + ", faults: [{slow-receiver: {nodes: h3}}]", value: "25Gbps", other: "50Gbps"},
	}
	for kind, fault := range map[string]string{
		"loss": "{nth: [5]}", "corrupt": "{nth: [5]}", "truncate": "{nth: [5]}", "duplicate": "{nth: [5]}", "reorder": "{nth: [5]}", "delay": "{delay: 2us}",
		"rate-cut": "{rate: 10Gbps}", "link-down": "{links: h3-*}", "pause": "{node: h3}", "pause-storm": "{node: h3}", "crash": "{nodes: leaf0}", "agent-crash": "{nodes: leaf0}",
		"wipe-mft": "{nodes: leaf0}", "mft-full": "{nodes: leaf0}", "nic-stall": "{nodes: h3}", "slow-receiver": "{nodes: h3, rate: 25Gbps}",
	} {
		when := "at: 60us, for: 20us, "
		switch {
		case strings.HasPrefix(fault, "{nth"), kind == "mft-full":
			when = ""
		case kind == "wipe-mft":
			when = "at: 60us, "
		}
		all["faults."+kind] = keyRun{lab: message, at: "faults", value: "[{" + when + kind + ": " + fault + "}]"}
	}
	all["faults.restart"] = keyRun{lab: message, at: "faults", value: "[{at: 60us, restart: {nodes: leaf0}}]"}
	return all
}

func frameFaultRuns() map[string]keyRun {
	const (
		fifth  = message + ", faults: [{loss: {nth: [5]}}]"
		first  = message + ", faults: [{loss: {links: h0-*, nth: [1]}}]"
		bursts = message + ", faults: [{loss: {gilbert-elliott: {to-bad: 1%, to-good: 50%}}}]"
	)
	return map[string]keyRun{
		"faults.loss.links":           {lab: fifth, value: "h0-*"},
		"faults.loss.direction":       {lab: first, value: "up"},
		"faults.loss.sender":          {lab: fifth, value: "leaf0"},
		"faults.loss.frames":          {lab: first, value: "{kind: [ack]}"},
		"faults.loss.rate":            {lab: message + ", faults: [{loss: {}}]", value: "1%", other: "2%"},
		"faults.loss.nth":             {lab: fifth, value: "[7]", other: "[5]"},
		"faults.loss.every-nth":       {lab: message + ", faults: [{loss: {}}]", value: "20", other: "30"},
		"faults.loss.gilbert-elliott": {lab: message + ", faults: [{loss: {}}]", value: "{to-bad: 1%, to-good: 30%}", other: "{to-bad: 2%, to-good: 30%}"},
		"faults.loss.delay":           {lab: message + ", faults: [{reorder: {nth: [5]}}]", at: "faults[0].reorder.delay", value: "2us"},
		"faults.loss.jitter":          {lab: message + ", faults: [{delay: {delay: 1us}}]", at: "faults[0].delay.jitter", value: "1us"},

		"faults.loss.frames.kind":   {lab: first, value: "ack", other: "data"},
		"faults.loss.frames.opcode": {lab: first, value: "RC_SEND_*", other: "RC_ACKNOWLEDGE"},
		"faults.loss.frames.psn":    {lab: first, value: "0..8388607", other: "8388608..16777215"},
		"faults.loss.frames.qp":     {lab: first, value: "0x11"},
		"faults.loss.frames.from":   {lab: first, value: "h0", other: "h1"},
		"faults.loss.frames.to":     {lab: first, value: "group", other: "h1"},

		"faults.loss.gilbert-elliott.to-bad":    {lab: bursts, value: "2%", other: "1%"},
		"faults.loss.gilbert-elliott.to-good":   {lab: bursts, value: "30%", other: "50%"},
		"faults.loss.gilbert-elliott.loss-bad":  {lab: bursts, value: "50%"},
		"faults.loss.gilbert-elliott.loss-good": {lab: bursts, value: "1%"},
	}
}
