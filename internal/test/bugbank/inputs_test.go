// SPDX-License-Identifier: Apache-2.0

package bugbank

var inputs = []pitfall{
	{
		number: 59, what: "YAML that grows: aliases of aliases, nesting without end, files without end",
		seen: "CVE-2019-11253, CVE-2021-4235, go-yaml#666",
		bugs: []bug{{
			wrong: "Aliases are put in where they stand",
			edits: edit("lab/bind.go", "\tcase *ast.AliasNode, *ast.AnchorNode, *ast.MergeKeyNode:\n", "\tcase *ast.MergeKeyNode:\n"),
			test:  "lab TestErrors",
		}, {
			wrong: "The parser, which recurses, gets any depth",
			edits: edit("lab/parse.go", "if depth > depthMax {", "if depth > 1<<20 {"),
			test:  "lab TestErrors",
		}, {
			wrong: "A file may have any size",
			edits: edit("lab/parse.go", "\tif len(text) > fileBytesMax {", "\tif len(text) > fileBytesMax<<20 {"),
			test:  "lab TestFileTooLarge",
		}},
	},
	{
		number: 60, what: "A capture whose lengths are believed: 80 bytes make 4 GB",
		seen: "gopacket#1235, #171 and #439, fq#96",
		not:  "captures are written, and none is read. Of what comes from elsewhere packets have their lengths checked (32), and lab files are bounded (59)",
	},
	{
		number: 61, what: "Streams of HTTP/2 opened and reset without end",
		seen: "CVE-2023-44487",
		bugs: []bug{{
			wrong: "An agent takes as many streams as come",
			edits: edit("nodeagent/agent_linux.go", ", grpc.MaxConcurrentStreams(streamsMax)", ""),
			test:  "nodeagent TestStreams",
		}},
	},
	{
		number: 62, what: "Nodes that are privileged because that is easier",
		seen: "containerlab's default; https-portal#148",
		bugs: []bug{{
			wrong: "Containers are privileged",
			edits: edit("orchestrator/engine/docker/docker.go", `NetworkMode: "none", CapDrop: []string{"ALL"},`, `NetworkMode: "none", Privileged: true, CapDrop: []string{"ALL"},`),
			test:  "orchestrator/engine/docker TestCreateRequest",
		}, {
			wrong: "Containers keep the capabilities that the engine gives",
			edits: edit("orchestrator/engine/docker/docker.go", `CapDrop: []string{"ALL"}, `, ""),
			test:  "orchestrator/engine/docker TestCreateRequest",
		}, {
			wrong: "A node is called what a lab file says, whatever that is",
			edits: edit("lab/check.go", "if !nodeName.MatchString(n) {", "if n == \"\" {"),
			test:  "lab TestEscapes",
		}, {
			wrong: "A node can gain by executing something what it does not have",
			edits: edit("nodeagent/agent_linux.go", "\tif err := giveUpPrivileges(); err != nil {\n\t\treturn err\n\t}\n", ""),
			test:  "nodeagent TestNoNewPrivileges",
		}},
	},
	{
		number: 63, what: "Whoever has any key may do anything",
		seen: "CVE-2021-37218, CVE-2021-37219, CVE-2020-7956, CVE-2023-1782",
		bugs: []bug{{
			wrong: "The folder of a node's sockets, which protects them, is open to all users of the host",
			edits: edit("orchestrator/store.go", "os.MkdirAll(dir, 0o700)", "os.MkdirAll(dir, 0o755)"),
			test:  "orchestrator TestFoldersOfNodes", root: true,
		}},
	},
}
