package bugbank

import "github.com/mcastlab/mcastlab/patch"

// attackHost are signals, races and files of the live half, found by attacking mcastlab itself.
var attackHost = []pitfall{
	{
		what: "An address that is a number while a stack grows names the stack's old place: the kernel's answer is lost, one deployment in eleven failed",
		seen: "github.com/safchain/ethtool 0.7.0, func ioctl",
		bugs: []bug{{
			wrong: "The address of what ethtool is asked goes through a uintptr",
			edits: []patch.Edit{
				{File: "netdev/ethtool_linux.go", Old: "\tdata unsafe.Pointer\n", New: "\tdata uintptr\n"},
				{File: "netdev/ethtool_linux.go", Old: "ioctl(name string, data unsafe.Pointer)", New: "ioctl(name string, data uintptr)"},
				{File: "netdev/ethtool_linux.go", Old: "unsafe.Pointer(&info)", New: "uintptr(unsafe.Pointer(&info))"},
				{File: "netdev/ethtool_linux.go", Old: "s.ioctl(name, unsafe.Pointer(&text[0]))", New: "s.ioctl(name, uintptr(unsafe.Pointer(&text[0])))"},
				{File: "netdev/ethtool_linux.go", Old: "unsafe.Pointer(&b[0])); err != nil {\n\t\treturn nil, fmt", New: "uintptr(unsafe.Pointer(&b[0]))); err != nil {\n\t\treturn nil, fmt"},
				{File: "netdev/ethtool_linux.go", Old: "unsafe.Pointer(&b[0])); err != nil {\n\t\treturn fmt", New: "uintptr(unsafe.Pointer(&b[0]))); err != nil {\n\t\treturn fmt"},
			},
			test: "netdev TestFeaturesOnGrowingStacks", root: true,
		}},
	},
	{
		what: "Only Ctrl-C and kill are thought of: a terminal that closes, Ctrl-\\ or a reader that goes leaves the lab up",
		seen: "mcastlab",
		bugs: []bug{
			{
				wrong: "Hangup and quit are not listened to",
				edits: edit("command/signals.go", "[]os.Signal{syscall.SIGHUP, syscall.SIGQUIT}", "[]os.Signal{}"),
				test:  "command TestSignalsLive", root: true,
			},
			{
				wrong: "A write that nobody reads ends the program on the spot",
				edits: []patch.Edit{
					{File: "command/signals.go", Old: "\tsignal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)\n", New: ""},
					{File: "command/pipe_linux.go", Old: "\tif len(fds) == 0 {\n", New: "\tif true {\n"},
				},
				test: "command TestSignalsLive", root: true,
			},
			{
				wrong: "A hangup ends a run under nohup",
				edits: edit("command/signals.go", "if !signal.Ignored(s) {", "if s != nil {"),
				test:  "command TestHangupIgnored",
			},
		},
	},
	{
		what: "A program that is interrupted ends only the program it has started, not those that one has started",
		seen: "golang/go#23019",
		bugs: []bug{{
			wrong: "Programs of exec are no process groups",
			edits: []patch.Edit{
				{File: "orchestrator/exec_linux.go", Old: "\tcmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}\n", New: ""},
				{File: "orchestrator/exec_linux.go", Old: "return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)", New: "return syscall.Kill(cmd.Process.Pid, syscall.SIGTERM)"},
			},
			test: "command TestSignalsLive", root: true,
		}},
	},
	{
		what: "A call is under way when the configuration it is for ends: its descriptors' numbers are somebody else's by then",
		seen: "mcastlab",
		bugs: []bug{
			{
				wrong: "A loop that was stopped takes a rate and wakes a closed number",
				edits: []patch.Edit{
					{File: "live/wait_linux.go", Old: "\tif w.gone {\n", New: "\tif false {\n"},
					{File: "live/loop.go", Old: "\tif l.stop {\n\t\treturn Lag{}, false\n\t}\n", New: ""},
				},
				test: "live TestStoppedLoop",
			},
			{
				wrong: "A loop that was stopped receives from a number that it has no more",
				edits: edit("live/loop.go", "\tif l.stop {\n\t\tl.mu.Unlock()\n\t\treturn false\n\t}\n", ""),
				test:  "live TestStoppedLoop",
			},
		},
	},
	{
		what: "A leader of the past is kept out only when what it must not reach is there already",
		seen: "mcastlab",
		bugs: []bug{
			{
				wrong: "The fence is raised when the new node runs",
				edits: []patch.Edit{
					{File: "nodeagent/agent_linux.go", Old: "\ta.fence.Raise(r.Epoch)\n", New: ""},
					{File: "nodeagent/agent_linux.go", Old: "\ta.node = n\n\treturn &control.ConfigureReply", New: "\ta.node = n\n\ta.fence.Raise(r.Epoch)\n\treturn &control.ConfigureReply"},
				},
				test: "nodeagent TestFenceBeforeNode",
			},
			{
				wrong: "A call without an epoch is not waited for",
				edits: edit("control/fence.go", "\tif epoch == 0 && !slices.Contains(leaders, info.FullMethod) {\n",
					"\tif epoch == 0 && (f.Highest() == 0 || !slices.Contains(leaders, info.FullMethod)) {\n"),
				test: "control TestFenceWithoutEpoch",
			},
		},
	},
}
