// SPDX-License-Identifier: Apache-2.0

package house

// A keyDoc is the page's text about a key beside its meaning.
type keyDoc struct {
	values  string // that it may have; empty: those that valuesOf has for its type
	example string // a mapping without braces, which has the key
	with    string // other parts that a lab needs for the example, likewise
	in      string // path of the mapping that the example is, if not the key's own
}

// keyDocs has an entry for each key of a lab file, by its path. A type that has several keys
// is there under the first of them. TestLabFileKeys reads every example as part of a lab.
func keyDocs() map[string]keyDoc {
	all := map[string]keyDoc{}
	for _, part := range []map[string]keyDoc{fileKeys(), topologyKeys(), switchKeys(), hostKeys(), collectiveKeys(), applicationKeys(), faultKeys()} {
		for k, d := range part {
			all[k] = d
		}
	}
	return all
}

// What several keys have in common.
const (
	ranksValues = "`all`, or hosts: names, `h*`, `h0..h7`"
	hostValues  = "a host's name"
	labelValues = "a letter, then up to 39 letters, digits, `_` and `-`"
	nodesValues = "one or a list: names, `agg*`, `h0..h7`, `re:^agg[01]$`, `tier:core`, `label:rack1`"
	linksValues = "one or a list: `agg*-core*`, `h0:0-leaf0:0`, `re:^h[0-3]-`, `tier:leaf-agg`, `label:rack1`"
	sizesValues = "a list of 0B to 2GiB"
	irnWith     = "nics: {retransmit: irn}"
	agentsWith  = "controllers: 3"
	ntreeWith   = "topology: {m-port-n-tree: {m: 4, n: 2}}"
)

func fileKeys() map[string]keyDoc {
	return map[string]keyDoc{
		"name":        {values: "a lower-case letter, then up to 39 lower-case letters, digits and `-`", example: "name: my-first-lab"},
		"seed":        {values: "0 to 18446744073709551615", example: "seed: 7"},
		"topology":    {values: "one of the shapes", example: "topology: {fat-tree: {k: 4}}"},
		"links":       {example: "links: {rate: 400Gbps, delay: 300ns}"},
		"switches":    {example: "switches: {latency: 500ns}"},
		"nics":        {example: "nics: {mtu: 1024}"},
		"hosts":       {example: "hosts: [{name: h3, kind: external}]"},
		"labels":      {example: "labels: [{name: rack1, nodes: [h0, h1]}]"},
		"controllers": {example: "controllers: 3"},
		"runtime":     {example: "runtime: {dilation: 100}"},
		"trace":       {example: "trace: messages"},
		"times":       {example: "times: ranks"},
		"workloads":   {values: "a list of mappings, each with one of the kinds", example: "workloads: [{bcast: {schemes: [cepheus, chain], sizes: [1MiB]}}]"},
		"faults":      {values: "a list of mappings, each with one of the kinds", example: "faults: [{loss: {rate: 1%}}]"},
		"expect":      {values: "a list of comparisons", example: "expect: [bcast.cepheus.64B.jct.p50 < 20]"},

		"sweep": {example: "sweep: {over: [{key: seed, values: [1, 2]}], repeats: 3}"},

		"sweep.over":        {example: "over: [{key: nics.mtu, values: [1024, 4096]}]"},
		"sweep.repeats":     {values: "1 to 1000", example: "repeats: 5"},
		"sweep.measure":     {values: "`jct.p50`, `source.avg` and what else [expect](#the-file) names of a row", example: "measure: jct.p50, repeats: 5"},
		"sweep.limit":       {values: "1 to 100000", example: "limit: 5000, repeats: 5"},
		"sweep.over.key":    {values: "the path of a key, but for `name`, `controllers`, `runtime`, `trace`, `times`, `expect` and `sweep`", example: "over: [{key: topology.star.hosts, values: [4, 8]}]", in: "sweep"},
		"sweep.over.name":   {values: labelValues, example: "over: [{key: topology.star.hosts, name: hosts, values: [4, 8]}]", in: "sweep"},
		"sweep.over.values": {values: "a list of values of the key", example: "over: [{key: \"workloads[0].bcast.schemes[0]\", values: [cepheus, {chain: {slices: 4}}]}]", in: "sweep"},

		"links.rate":             {example: "rate: 400Gbps"},
		"links.delay":            {values: "0 to 1s", example: "delay: 1us"},
		"links.tiers":            {example: "tiers: {host-leaf: {rate: 25Gbps}}"},
		"links.ip":               {example: "ip: 6"},
		"links.vlan":             {values: "0 to 4094", example: "vlan: 12"},
		"links.tiers.host-leaf":  {example: "host-leaf: {rate: 25Gbps}"},
		"links.tiers.leaf-spine": {example: "leaf-spine: {rate: 400Gbps}", with: "topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}"},
		"links.tiers.leaf-agg":   {example: "leaf-agg: {delay: 1us}", with: "topology: {fat-tree: {k: 4}}"},
		"links.tiers.agg-core":   {example: "agg-core: {rate: 400Gbps, delay: 5us}", with: "topology: {fat-tree: {k: 4}}"},
		"links.tiers.core-core":  {example: "core-core: {delay: 5us}", with: "topology: {m-port-n-tree: {m: 4, n: 4}}"},

		"links.tiers.host-leaf.rate":  {example: "rate: 25Gbps"},
		"links.tiers.host-leaf.delay": {values: "0 to 1s", example: "delay: 100ns"},

		"labels.name":  {values: "a word without spaces", example: "name: rack1"},
		"labels.nodes": {values: "one or a list: names, `h*`, `h0..h7`, `re:^agg[01]$`, `tier:leaf`", example: "nodes: h0..h1"},

		"runtime.dilation":      {example: "dilation: 100"},
		"runtime.clock":         {example: "clock: dilated"},
		"runtime.channel-delay": {example: "channel-delay: 2us"},
		"runtime.management":    {example: "management: true"},
		"runtime.hosts":         {values: "`auto`, names of servers, or labels of the Swarm's nodes as `node.labels.rack==a` or with `!=`, separated by commas", example: "hosts: auto"},
		"runtime.links":         {example: "links: userspace"},
		"runtime.io":            {example: "io: trains"},
	}
}

func topologyKeys() map[string]keyDoc {
	return map[string]keyDoc{
		"topology.fat-tree":      {example: "fat-tree: {k: 4}"},
		"topology.three-layer":   {example: "three-layer: {preset: ft1024}"},
		"topology.leaf-spine":    {example: "leaf-spine: {leaves: 2, spines: 2, hosts: 4}"},
		"topology.m-port-n-tree": {example: "m-port-n-tree: {m: 8, n: 2}"},
		"topology.star":          {example: "star: {hosts: 8}"},
		"topology.custom":        {example: "custom: {hosts: [h0, h1], switches: [s0], links: [h0-s0, h1-s0]}"},

		"topology.fat-tree.k": {values: "2 to 64", example: "k: 4"},

		"topology.three-layer.preset":      {example: "preset: ft1024"},
		"topology.three-layer.radix":       {values: "from 0 on; 0: of the preset", example: "preset: ft1024, radix: 128"},
		"topology.three-layer.pods":        {values: "from 0 on; 0: of the preset", example: "preset: ft1024, pods: 2"},
		"topology.three-layer.leaves":      {values: "from 0 on; 0: of the preset", example: "radix: 4, pods: 2, leaves: 2, hosts: 2, aggs: 2, cores: 4"},
		"topology.three-layer.hosts":       {values: "from 0 on; 0: of the preset", example: "radix: 4, pods: 2, leaves: 2, hosts: 2, aggs: 2, cores: 4"},
		"topology.three-layer.aggs":        {values: "from 0 on; 0: of the preset", example: "radix: 4, pods: 2, leaves: 2, hosts: 2, aggs: 2, cores: 4"},
		"topology.three-layer.cores":       {values: "from 0 on; 0: of the preset", example: "radix: 4, pods: 2, leaves: 2, hosts: 2, aggs: 2, cores: 4"},
		"topology.three-layer.core-groups": {values: "from 0 on, dividing `aggs` and `cores`; 0: as many as `aggs`", example: "radix: 8, pods: 2, leaves: 2, hosts: 4, aggs: 2, cores: 4, core-groups: 1"},

		"topology.leaf-spine.preset":   {example: "preset: ucc188"},
		"topology.leaf-spine.leaves":   {values: "from 0 on; 0: of the preset", example: "leaves: 2, spines: 1, hosts: 2"},
		"topology.leaf-spine.spines":   {values: "from 0 on; 0: of the preset", example: "leaves: 2, spines: 2, hosts: 2"},
		"topology.leaf-spine.hosts":    {values: "from 0 on; 0: of the preset", example: "leaves: 2, spines: 1, hosts: 4"},
		"topology.leaf-spine.parallel": {values: "from 0 on; 0: 1, or of the preset", example: "leaves: 2, spines: 1, hosts: 2, parallel: 2"},
		"topology.leaf-spine.total":    {values: "that of `leaves` to `leaves` times `hosts`; 0: the latter, or of the preset", example: "leaves: 2, spines: 1, hosts: 3, total: 5"},

		"topology.m-port-n-tree.m": {values: "4 to 254, even", example: "m: 8"},
		"topology.m-port-n-tree.n": {values: "from 2 on", example: "n: 2"},
		"topology.star.hosts":      {values: "2 to 254", example: "hosts: 8"},

		"topology.custom.preset":   {example: "preset: figtree"},
		"topology.custom.hosts":    {values: "a list of names: a letter, then up to 30 letters, digits, `_` and `-`", example: "hosts: [h0, h1], switches: [s0], links: [h0-s0, h1-s0]"},
		"topology.custom.switches": {values: "a list of names, likewise", example: "hosts: [h0, h1], switches: [s0], links: [h0-s0, h1-s0]"},
		"topology.custom.links":    {values: "a list of ends, or of mappings", example: "hosts: [h0, h1], switches: [s0], links: [h0-s0, {ends: h1-s0, rate: 25Gbps}]"},

		"topology.custom.links.ends":  {values: "`a-b`, or `a:0-b:3` with ports from 0 to 253", example: "hosts: [h0, h1], switches: [s0], links: [{ends: h0-s0:1}, {ends: h1-s0:0}]", in: "topology.custom"},
		"topology.custom.links.rate":  {example: "hosts: [h0, h1], switches: [s0], links: [h0-s0, {ends: h1-s0, rate: 25Gbps}]", in: "topology.custom"},
		"topology.custom.links.delay": {values: "0 to 1s", example: "hosts: [h0, h1], switches: [s0], links: [h0-s0, {ends: h1-s0, delay: 5us}]", in: "topology.custom"},
	}
}

func switchKeys() map[string]keyDoc {
	return map[string]keyDoc{
		"switches.buffer":         {values: "64KiB to 1024TiB", example: "buffer: 16MB"},
		"switches.latency":        {values: "0 to 1s", example: "latency: 500ns"},
		"switches.forwarding":     {example: "forwarding: cut-through"},
		"switches.queues":         {example: "queues: input"},
		"switches.replication":    {example: "queues: input, replication: sync"},
		"switches.flow-control":   {example: "queues: input, flow-control: credits"},
		"switches.pfc":            {example: "pfc: false"},
		"switches.ecn":            {example: "ecn: true"},
		"switches.watchdog":       {example: "watchdog: true"},
		"nics.scheduling":         {values: "eight of 0 to 255", example: "scheduling: [1, 1, 1, 4, 1, 1, 0, 0]"},
		"switches.scheduling":     {values: "eight of 0 to 255", example: "scheduling: [1, 1, 1, 4, 1, 1, 0, 0]"},
		"switches.classes":        {example: "classes: [{dscp: 26, priority: 5}]"},
		"switches.reconverge":     {values: "0 to 1s", example: "reconverge: 50us"},
		"switches.groups":         {values: "1 to 65536", example: "groups: 64"},
		"switches.group-memory":   {values: "1B to 1024TiB", example: "group-memory: 64kB"},
		"switches.group-net":      {values: "a /16 of unicast IPv4 addresses outside 10.0.0.0 to 10.253.255.255", example: "group-net: 10.255.0.0/16"},
		"switches.fan-out":        {values: "from 0 on", example: "fan-out: 16"},
		"switches.group-age":      {values: "0, or 1s to 86400s", example: "group-age: 30s"},
		"switches.cnp-filter":     {example: "cnp-filter: false"},
		"switches.feedback-delay": {values: "0 to 1s", example: "feedback-delay: 300ns"},
		"switches.accelerator":    {example: "accelerator: look-aside"},
		"switches.rules":          {example: "rules: gleam"},

		"switches.pfc.enabled":       {example: "enabled: false"},
		"switches.pfc.priorities":    {values: "a list of 0 to 7", example: "priorities: [3, 5]"},
		"switches.pfc.xoff":          {example: "xoff: 100kB"},
		"switches.pfc.xon":           {values: "0B to that of `xoff`", example: "xoff: 100kB, xon: 50kB"},
		"switches.pfc.headroom":      {example: "headroom: 100kB"},
		"switches.pfc.alpha":         {values: "0, or 0.0078125 to 64", example: "alpha: 0.125"},
		"switches.pfc.resume-offset": {values: "from 1B on", example: "alpha: 0.125, resume-offset: 3KiB"},
		"switches.pfc.quanta":        {values: "256 to 65535", example: "quanta: 1000"},

		"switches.ecn.enabled":    {example: "enabled: true"},
		"switches.ecn.priorities": {values: "a list of 0 to 7", example: "enabled: true, priorities: [3, 5]"},
		"switches.ecn.kmin":       {values: "0B to that of `kmax`", example: "enabled: true, kmin: 100kB"},
		"switches.ecn.kmax":       {values: "that of `kmin` to 1TiB", example: "enabled: true, kmax: 3200kB"},
		"switches.ecn.on-arrival": {example: "enabled: true, on-arrival: true"},
		"switches.ecn.pmax":       {values: "0 to 1", example: "enabled: true, pmax: 0.01"},

		"switches.watchdog.enabled": {example: "enabled: true"},
		"switches.watchdog.detect":  {values: "above 0 to 86400s", example: "enabled: true, detect: 1ms"},
		"switches.watchdog.restore": {example: "enabled: true, restore: 2ms"},
		"switches.watchdog.action":  {example: "enabled: true, action: forward"},

		"switches.classes.dscp":     {values: "0 to 63", example: "dscp: 26"},
		"switches.classes.pcp":      {values: "0 to 7", example: "pcp: 1, priority: 2"},
		"switches.classes.priority": {values: "0 to 7", example: "dscp: 26, priority: 5"},

		"switches.cnp-filter.enabled": {example: "enabled: false"},
		"switches.cnp-filter.window":  {values: "above 0 to 86400s", example: "window: 20us"},
	}
}

func hostKeys() map[string]keyDoc {
	return map[string]keyDoc{
		"nics.mtu":           {example: "mtu: 1024"},
		"nics.ack-every":     {values: "from 1 on", example: "ack-every: 4"},
		"nics.window":        {values: "0, or from that of `ack-every` on", example: "window: 64"},
		"nics.timeout":       {example: "timeout: 67.108864ms"},
		"nics.retries":       {values: "0 to 7", example: "retries: 3"},
		"nics.rnr-retries":   {example: "rnr-retries: infinite"},
		"nics.rnr-timer":     {values: "0 to 1s", example: "rnr-timer: 20us"},
		"nics.retransmit":    {example: "retransmit: irn"},
		"nics.byte-counter":  {values: "from 1B on", example: "congestion: dcqcn, byte-counter: 1MB"},
		"nics.irn":           {example: "retransmit: irn, irn: {rto-low: 50us}"},
		"nics.congestion":    {example: "congestion: dcqcn", with: "switches: {ecn: true}"},
		"nics.traffic-class": {example: "traffic-class: 34"},
		"nics.icrc":          {example: "icrc: flag", with: "workloads: [{bcast: {schemes: [cepheus], sizes: [64B], memory: phantom}}]"},
		"nics.host-cost":     {example: "host-cost: {post: 200ns, poll: 100ns}"},

		"nics.irn.cap":      {values: "1B to 1024TiB", example: "cap: 128KiB", with: irnWith},
		"nics.irn.rto-low":  {values: "the shortest time in which a packet can be acknowledged, to that of `rto-high`", example: "rto-low: 50us", with: irnWith},
		"nics.irn.rto-high": {values: "that of `rto-low` to 86400s", example: "rto-high: 1ms", with: irnWith},

		"nics.host-cost.post":       {values: "0 to 1s", example: "post: 200ns"},
		"nics.host-cost.poll":       {values: "0 to 1s", example: "poll: 100ns"},
		"nics.host-cost.stack":      {values: "0 to 1s", example: "stack: 1.5us"},
		"nics.host-cost.connection": {values: "0 to 1s", example: "connection: 2us"},
		"nics.host-cost.jitter":     {values: "0 to 1s", example: "jitter: 50ns"},

		"hosts.name":     {values: hostValues, example: "name: h3"},
		"hosts.kind":     {example: "name: h3, kind: external"},
		"hosts.external": {example: "name: h3, kind: external, external: {qpn: 0x11}"},

		"hosts.external.qpn":         {values: "0 to 16777215, or 0x and hexadecimal", example: "qpn: 0x11"},
		"hosts.external.send-psn":    {values: "0 to 16777215, or 0x and hexadecimal", example: "send-psn: 100"},
		"hosts.external.receive-psn": {values: "0 to 16777215, or 0x and hexadecimal", example: "receive-psn: 100"},
		"hosts.external.va":          {example: "va: 0x7f0000001000"},
		"hosts.external.rkey":        {values: "0 to 4294967295, or 0x and hexadecimal", example: "rkey: 0x1234"},
		"hosts.external.timeout":     {example: "timeout: 536.870912ms"},
		"hosts.external.window":      {values: "16KiB to 64MiB", example: "window: 1MiB"},
		"hosts.external.ready":       {example: "ready: word"},
		"hosts.external.wait":        {values: "1s to 3600s", example: "wait: 300s"},
		"hosts.external.linger":      {values: "0s to 3600s", example: "linger: 2s"},
	}
}

// benchmarkKeys are those that the benchmarks of collectives share.
func benchmarkKeys(kind, sizes string) map[string]keyDoc {
	p := "workloads." + kind + "."
	return map[string]keyDoc{
		p + "label":      {values: labelValues, example: "label: first"},
		p + "ranks":      {values: ranksValues, example: "ranks: [h0, h2..h3]"},
		p + "sizes":      {values: sizes, example: "sizes: [64B, 1MiB]"},
		p + "iterations": {example: "iterations: 5"},
		p + "warm-up":    {values: "0 to 1048576", example: "warm-up: 1"},
		p + "memory":     {example: "memory: phantom"},
	}
}

func collectiveKeys() map[string]keyDoc {
	all := map[string]keyDoc{
		"workloads.bcast":          {example: "bcast: {schemes: [cepheus, chain], sizes: [1MiB]}"},
		"workloads.allgather":      {example: "allgather: {schemes: [ring, multicast], sizes: [64KiB]}"},
		"workloads.reduce-scatter": {example: "reduce-scatter: {schemes: [ring, in-network], sizes: [64KiB]}"},
		"workloads.alltoall":       {example: "alltoall: {schemes: [linear, pairwise], sizes: [64KiB]}"},
		"workloads.fsdp":           {example: "fsdp: {schemes: [{allgather: multicast, reduce-scatter: in-network}], sizes: [64KiB]}"},
		"workloads.hpl":            {example: "hpl: {n: [256], grids: [2x2], bcast: [1ring, cepheus]}"},
		"workloads.storage":        {example: "storage: {schemes: [unicasts, multicast-shared], bs: [4KiB]}"},
		"workloads.program":        {example: "program: {name: ring-sum}"},
		"workloads.command":        {example: "command: {run: [./allreduce], launcher: mpirun, per-host: 2}"},
		"workloads.many-to-many":   {example: "many-to-many: {schemes: [cyclic, opensm], sizes: [64KiB]}", with: ntreeWith},
		"workloads.flows":          {example: "flows: {flows: [{name: one, from: h0, to: h1, end: 10ms}]}"},

		"workloads.bcast.schemes":          {values: "a list of names, or of names with parameters ([schemes](#schemes))", example: "schemes: [cepheus, {chain: {slices: 4}}]"},
		"workloads.bcast.root":             {values: "a host among the ranks", example: "root: h2"},
		"workloads.bcast.operation":        {example: "schemes: [cepheus], operation: write", with: "hosts: [{name: h3, kind: external}]"},
		"workloads.bcast.group":            {values: "10.254.255.1 to 10.254.255.254, or the same of `switches.group-net`", example: "schemes: [cepheus], group: 10.254.255.1", with: "hosts: [{name: h3, kind: external}]"},
		"workloads.allgather.schemes":      {values: "a list, as for `bcast`", example: "schemes: [ring, {multicast: {parallel: 2}}]"},
		"workloads.reduce-scatter.schemes": {values: "a list of names", example: "schemes: [ring, in-network]"},
		"workloads.reduce-scatter.numbers": {example: "numbers: float32"},
		"workloads.alltoall.schemes":       {values: "a list of names", example: "schemes: [linear, pairwise]"},
		"workloads.fsdp.schemes":           {example: "schemes: [{allgather: ring, reduce-scatter: ring}]"},
		"workloads.fsdp.numbers":           {example: "numbers: float32"},

		"workloads.fsdp.schemes.label":          {values: labelValues, example: "label: plain"},
		"workloads.fsdp.schemes.allgather":      {values: "a scheme, as for `allgather`", example: "allgather: ring"},
		"workloads.fsdp.schemes.reduce-scatter": {values: "a scheme, as for `reduce-scatter`", example: "reduce-scatter: ring"},
		"workloads.fsdp.schemes.reduce-class":   {example: "allgather: ring, reduce-scatter: ring, reduce-class: 34"},

		"workloads.bcast.schemes.name":      {values: "one of the [schemes](#schemes), or `program:NAME`", example: "name: cepheus"},
		"workloads.bcast.schemes.label":     {values: labelValues, example: "name: chain, label: by-four"},
		"workloads.bcast.schemes.slices":    {example: "name: chain, slices: 4"},
		"workloads.bcast.schemes.radix":     {values: "from 2 on", example: "name: k-nomial, radix: 8"},
		"workloads.bcast.schemes.block":     {values: "1B to 2GiB", example: "name: rdmc, block: 256KiB"},
		"workloads.bcast.schemes.parallel":  {example: "allgather: {schemes: [{name: multicast, parallel: 2}], sizes: [64KiB]}", in: "workloads"},
		"workloads.bcast.schemes.fallback":  {example: "name: cepheus, fallback: full"},
		"workloads.bcast.schemes.subgroups": {values: "1 to 256", example: "name: ud-multicast, subgroups: 4"},
		"workloads.bcast.schemes.workers":   {values: "1 to that of `subgroups`", example: "name: ud-multicast, subgroups: 4, workers: 2"},
		"workloads.bcast.schemes.staging":   {values: "1 to 8192", example: "name: ud-multicast, staging: 4096"},
		"workloads.bcast.schemes.chunk":     {values: "1B to 1GiB", example: "name: uc-multicast, chunk: 64KiB"},
		"workloads.bcast.schemes.pace":      {values: "1 to 100", example: "name: ud-multicast, pace: 90"},
		"workloads.bcast.schemes.cutoff":    {example: "name: ud-multicast, cutoff: before-barrier"},
		"workloads.bcast.schemes.alpha":     {example: "name: ud-multicast, alpha: 100us"},
		"workloads.bcast.schemes.engine":    {example: "name: ud-multicast, engine: dpa"},
		"workloads.bcast.schemes.transport": {example: "name: unicast, transport: ud, per-chunk: 290ns"},
		"workloads.bcast.schemes.per-chunk": {values: "0 to 1s", example: "name: ud-multicast, engine: dpa, per-chunk: 50ns"},
		"workloads.bcast.schemes.copy-time": {values: "0 to 1s", example: "name: ud-multicast, copy-time: 2us"},
		"workloads.bcast.schemes.flag-time": {values: "0 to 1s", example: "name: ud-multicast, engine: dpa, flag-time: 1us"},
	}
	for kind, sizes := range map[string]string{
		"bcast": sizesValues, "allgather": sizesValues + ", over all ranks", "alltoall": sizesValues + ", over all ranks",
		"reduce-scatter": "a list of multiples of 4B up to 2GiB, over all ranks", "fsdp": "a list of multiples of 4B up to 2GiB, over all ranks",
	} {
		for k, d := range benchmarkKeys(kind, sizes) {
			all[k] = d
		}
	}
	return all
}

func applicationKeys() map[string]keyDoc {
	return map[string]keyDoc{
		"workloads.hpl.label":          {values: labelValues, example: "label: linpack"},
		"workloads.hpl.ranks":          {values: ranksValues, example: "ranks: h0..h3"},
		"workloads.hpl.dat":            {values: "a path below the lab file's folder", example: "dat: HPL.dat"},
		"workloads.hpl.n":              {values: "a list of 1 to 16384, with `cost-only` of more", example: "n: [256, 512]"},
		"workloads.hpl.nb":             {values: "a list of 1 to 1024", example: "nb: [32, 64]"},
		"workloads.hpl.grids":          {values: "a list of rows x columns", example: "grids: [2x2, 1x4]"},
		"workloads.hpl.order":          {example: "order: column"},
		"workloads.hpl.bcast":          {values: "a list of broadcast [schemes](#schemes)", example: "bcast: [1ring, cepheus]"},
		"workloads.hpl.fallback":       {example: "bcast: [cepheus], fallback: full"},
		"workloads.hpl.slices":         {example: "bcast: [chain], slices: 4"},
		"workloads.hpl.depth":          {values: "a list of 0 to 1", example: "depth: [0, 1]"},
		"workloads.hpl.pfact":          {values: "a list of `left`, `crout`, `right`", example: "pfact: [left, crout]"},
		"workloads.hpl.rfact":          {values: "a list of `left`, `crout`, `right`", example: "rfact: [right]"},
		"workloads.hpl.nbmin":          {values: "a list of numbers from 1 on", example: "nbmin: [2, 8]"},
		"workloads.hpl.ndiv":           {values: "a list of numbers from 2 on", example: "ndiv: [2, 4]"},
		"workloads.hpl.swap":           {example: "swap: exchange"},
		"workloads.hpl.swap-threshold": {values: "from 0 on", example: "swap: mix, swap-threshold: 32"},
		"workloads.hpl.threshold":      {values: "a number", example: "threshold: 8"},
		"workloads.hpl.gflops":         {values: "a number, 0 or more", example: "gflops: 1000"},
		"workloads.hpl.cost-only":      {example: "cost-only: true"},
		"workloads.hpl.epochs":         {values: "from 0 on", example: "cost-only: true, epochs: 3"},
		"workloads.hpl.pivots":         {example: "cost-only: true, pivots: centralised"},
		"workloads.hpl.panel-roots":    {example: "cost-only: true, panel-roots: all"},

		"workloads.storage.label":      {values: labelValues, example: "label: writes"},
		"workloads.storage.ranks":      {values: ranksValues, example: "ranks: h0..h2"},
		"workloads.storage.client":     {values: "a host among the ranks", example: "client: h1"},
		"workloads.storage.schemes":    {values: "a list of `1-unicast`, `unicasts`, `multicast-per-request`, `multicast-registered`, `multicast-shared`", example: "schemes: [unicasts, multicast-shared]"},
		"workloads.storage.bs":         {values: "a list of 1B to that of `size`", example: "bs: [4KiB, 64KiB]"},
		"workloads.storage.iodepth":    {values: "from 1 on", example: "iodepth: 8"},
		"workloads.storage.numjobs":    {values: "from 1 on", example: "numjobs: 2"},
		"workloads.storage.rw":         {example: "rw: randwrite"},
		"workloads.storage.size":       {example: "size: 16MiB"},
		"workloads.storage.number-ios": {values: "from 0 on", example: "number-ios: 100"},
		"workloads.storage.durability": {example: "durability: fsync"},
		"workloads.storage.on-failure": {example: "on-failure: degrade"},
		"workloads.storage.commit":     {values: "0 to 1s", example: "commit: 50us"},
		"workloads.storage.submit":     {values: "0 to 1s", example: "submit: 2us"},
		"workloads.storage.copy":       {values: "0 to 1s", example: "copy: 500ns"},
		"workloads.storage.complete":   {values: "0 to 1s", example: "complete: 1us"},
		"workloads.storage.disk":       {example: "disk: 64MiB"},
		"workloads.storage.crash":      {example: "on-failure: degrade, durability: fsync, crash: {host: h2, after: 50us}"},

		"workloads.storage.crash.host":  {values: "a replica's name", example: "host: h2"},
		"workloads.storage.crash.after": {example: "after: 50us"},

		"workloads.command.label":    {values: labelValues, example: "label: bandwidth"},
		"workloads.command.run":      {values: "a list of words", example: "run: [ib_write_lat, -F, h0]"},
		"workloads.command.launcher": {example: "launcher: mpirun"},
		"workloads.command.ranks":    {values: ranksValues, example: "ranks: [h1]"},
		"workloads.command.per-host": {values: "1 to 64", example: "per-host: 4"},
		"workloads.command.timeout":  {values: "1s to 86400s, of the wall clock", example: "timeout: 300s"},

		"workloads.program.label": {values: labelValues, example: "label: sums"},
		"workloads.program.name":  {values: labelValues, example: "name: ring-sum"},
		"workloads.program.args":  {values: "a list of words", example: "args: [3, fast]"},
		"workloads.program.ranks": {values: ranksValues, example: "ranks: h0..h2"},

		"workloads.flows.label":       {values: labelValues, example: "label: mix"},
		"workloads.flows.flows":       {values: "a list of mappings", example: "flows: [{name: one, from: h0, to: h1, end: 10ms}]"},
		"workloads.flows.message":     {values: "1B to 2GiB", example: "message: 16KiB"},
		"workloads.flows.outstanding": {values: "1 to 4096", example: "outstanding: 4"},
		"workloads.flows.interval":    {values: "above 0; the last flow ends within 10000 intervals", example: "interval: 100us"},
		"workloads.flows.memory":      {example: "memory: phantom"},

		"workloads.flows.flows.name":  {values: labelValues, example: "name: one"},
		"workloads.flows.flows.from":  {values: hostValues, example: "from: h0"},
		"workloads.flows.flows.to":    {values: "hosts: names, `h*`, `h1..h7`", example: "to: [h1, h2]"},
		"workloads.flows.flows.begin": {values: "0 on", example: "begin: 2ms"},
		"workloads.flows.flows.end":   {values: "after `begin`", example: "end: 10ms"},

		"workloads.many-to-many.label":      {values: labelValues, example: "label: exchange", with: ntreeWith},
		"workloads.many-to-many.schemes":    {values: "a list of `cyclic`, `cyclic-class`, `opensm`, `opensm-drawn`, `unicast`", example: "schemes: [cyclic, opensm]", with: ntreeWith},
		"workloads.many-to-many.sources":    {example: "sources: 40%", with: ntreeWith},
		"workloads.many-to-many.group":      {example: "group: 4", with: ntreeWith},
		"workloads.many-to-many.groups":     {example: "groups: per-source", with: ntreeWith},
		"workloads.many-to-many.replace":    {example: "group: 4, replace: 1", with: ntreeWith},
		"workloads.many-to-many.sizes":      {values: sizesValues, example: "sizes: [64KiB]", with: ntreeWith},
		"workloads.many-to-many.iterations": {example: "iterations: 5", with: ntreeWith},
		"workloads.many-to-many.memory":     {example: "memory: phantom", with: ntreeWith},
	}
}

func faultKeys() map[string]keyDoc {
	return map[string]keyDoc{
		"faults.in":          {example: "in: run, at: 20us, loss: {rate: 1%}"},
		"faults.at":          {example: "at: 20us, loss: {rate: 1%}"},
		"faults.for":         {values: "above 0 to 86400s", example: "at: 20us, for: 50us, loss: {rate: 1%}"},
		"faults.every":       {values: "above 0 to 86400s, for a fault that lasts that of `for` at least", example: "for: 10us, every: 100us, loss: {rate: 1%}"},
		"faults.probability": {values: "above 0 to 1, or to 100%", example: "probability: 50%, loss: {rate: 1%}"},

		"faults.loss":              {example: "loss: {links: h0-*, rate: 1%}"},
		"faults.corrupt":           {example: "corrupt: {rate: 0.001}"},
		"faults.truncate":          {example: "truncate: {rate: 0.001}"},
		"faults.duplicate":         {example: "duplicate: {rate: 1%, delay: 2us}"},
		"faults.reorder":           {example: "reorder: {rate: 1%, delay: 5us}"},
		"faults.delay":             {example: "delay: {delay: 2us, jitter: 1us}"},
		"faults.rate-cut":          {example: "rate-cut: {links: h3-*, rate: 10Gbps}"},
		"faults.link-down":         {example: "at: 20us, for: 1ms, link-down: {links: h3-*}"},
		"faults.pause":             {example: "at: 20us, for: 1ms, pause: {node: h3}"},
		"faults.pause-storm":       {example: "at: 20us, for: 1ms, pause-storm: {node: h3}"},
		"faults.crash":             {example: "at: 20us, for: 1ms, crash: {nodes: leaf0}"},
		"faults.agent-crash":       {example: "at: 20us, agent-crash: {nodes: leaf0}"},
		"faults.restart":           {example: "at: 20us, restart: {nodes: leaf0}"},
		"faults.wipe-mft":          {example: "at: 20us, wipe-mft: {nodes: leaf0}"},
		"faults.mft-full":          {example: "mft-full: {nodes: leaf0}"},
		"faults.nic-stall":         {example: "at: 20us, for: 100us, nic-stall: {nodes: h3}"},
		"faults.slow-receiver":     {example: "slow-receiver: {nodes: h3, rate: 25Gbps}"},
		"faults.control-partition": {example: "for: 1s, control-partition: {controllers: controller0}", with: agentsWith},
		"faults.controller-crash":  {example: "for: 1s, controller-crash: {controllers: controller0}", with: agentsWith},

		"faults.loss.links":           {values: linksValues, example: "links: h0-*, rate: 1%"},
		"faults.loss.direction":       {example: "direction: down, rate: 1%"},
		"faults.loss.sender":          {values: nodesValues, example: "sender: leaf0, rate: 1%"},
		"faults.loss.frames":          {example: "frames: {kind: [ack, nak]}, rate: 1%"},
		"faults.loss.rate":            {example: "rate: 0.5%"},
		"faults.loss.nth":             {values: "a list of numbers from 1 on", example: "nth: [3, 7]"},
		"faults.loss.every-nth":       {values: "from 0 on", example: "every-nth: 100"},
		"faults.loss.gilbert-elliott": {example: "gilbert-elliott: {to-bad: 0.1%, to-good: 10%}"},
		"faults.loss.delay":           {example: "reorder: {rate: 1%, delay: 2us}", in: "faults"},
		"faults.loss.jitter":          {example: "delay: {jitter: 1us}", in: "faults"},

		"faults.loss.frames.kind":   {values: "one or a list: `data`, `ack`, `nak`, `response`, `cnp`, `mrp`, `pfc`, `other`", example: "kind: [ack, nak]"},
		"faults.loss.frames.opcode": {values: "one or a list of [opcodes](wire.md#opcodes), or patterns", example: "opcode: RC_SEND_*"},
		"faults.loss.frames.psn":    {example: "psn: 100..200"},
		"faults.loss.frames.qp":     {example: "qp: 0x11"},
		"faults.loss.frames.from":   {values: "one or a list of hosts", example: "from: h0"},
		"faults.loss.frames.to":     {values: "one or a list of hosts, or `group`", example: "to: group"},

		"faults.loss.gilbert-elliott.to-bad":    {example: "to-bad: 0.1%"},
		"faults.loss.gilbert-elliott.to-good":   {example: "to-good: 10%"},
		"faults.loss.gilbert-elliott.loss-bad":  {example: "loss-bad: 50%"},
		"faults.loss.gilbert-elliott.loss-good": {example: "loss-good: 0.01%"},

		"faults.rate-cut.links":                {values: linksValues, example: "links: h3-*"},
		"faults.rate-cut.rate":                 {example: "rate: 10Gbps"},
		"faults.link-down.links":               {values: linksValues, example: "links: h3-*"},
		"faults.pause.node":                    {values: "hosts, as nodes of `crash`", example: "node: h2..h3"},
		"faults.pause.priority":                {values: "0 to 7", example: "priority: 5"},
		"faults.pause-storm.node":              {values: "hosts, as nodes of `crash`", example: "node: h3"},
		"faults.pause-storm.priority":          {values: "0 to 7", example: "priority: 5"},
		"faults.pause-storm.gap":               {values: "1ns to 86400s", example: "gap: 20us"},
		"faults.crash.nodes":                   {values: nodesValues, example: "nodes: leaf0"},
		"faults.mft-full.nodes":                {values: "switches, as nodes of `crash`", example: "nodes: leaf0"},
		"faults.mft-full.room":                 {values: "from 0 on", example: "room: 1"},
		"faults.slow-receiver.nodes":           {values: "hosts, as nodes of `crash`", example: "nodes: h3"},
		"faults.slow-receiver.rate":            {example: "rate: 25Gbps"},
		"faults.control-partition.controllers": {values: "one or a list: `controller0` to `controller4`, patterns, `re:^controller[01]$`", example: "controllers: controller0", with: agentsWith},
		"faults.control-partition.direction":   {example: "direction: out", with: agentsWith},
		"faults.controller-crash.controllers":  {values: "as for `control-partition`", example: "controllers: controller1", with: agentsWith},
	}
}
