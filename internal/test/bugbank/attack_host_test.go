// SPDX-License-Identifier: Apache-2.0

package bugbank

import "github.com/mcastlab/mcastlab/internal/test/patch"

// attackHost are signals, races and files of the live half, found by attacking mcastlab itself.
var attackHost = []pitfall{
	{
		what: "An address that is a number while a stack grows names the stack's old place: the kernel's answer is lost, one deployment in eleven failed",
		seen: "github.com/safchain/ethtool 0.7.0, func ioctl",
		bugs: []bug{{
			wrong: "The address of what ethtool is asked goes through a uintptr",
			edits: []patch.Edit{
				{File: "drivers/netdev/ethtool_linux.go", Old: "\tdata unsafe.Pointer\n", New: "\tdata uintptr\n"},
				{File: "drivers/netdev/ethtool_linux.go", Old: "ioctl(name string, data unsafe.Pointer)", New: "ioctl(name string, data uintptr)"},
				{File: "drivers/netdev/ethtool_linux.go", Old: "unsafe.Pointer(&info)", New: "uintptr(unsafe.Pointer(&info))"},
				{File: "drivers/netdev/ethtool_linux.go", Old: "s.ioctl(name, unsafe.Pointer(&text[0]))", New: "s.ioctl(name, uintptr(unsafe.Pointer(&text[0])))"},
				{File: "drivers/netdev/ethtool_linux.go", Old: "unsafe.Pointer(&b[0])); err != nil {\n\t\treturn nil, fmt", New: "uintptr(unsafe.Pointer(&b[0]))); err != nil {\n\t\treturn nil, fmt"},
				{File: "drivers/netdev/ethtool_linux.go", Old: "unsafe.Pointer(&b[0])); err != nil {\n\t\treturn fmt", New: "uintptr(unsafe.Pointer(&b[0]))); err != nil {\n\t\treturn fmt"},
			},
			test: "drivers/netdev TestFeaturesOnGrowingStacks", root: true,
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
			wrong: "Programs of exec are no process groups, and have no process namespace of their own",
			edits: []patch.Edit{
				{File: "orchestrator/programs/program.go", Old: "Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS", New: "Cloneflags: unix.CLONE_NEWNS"},
				{File: "orchestrator/programs/program.go", Old: "\t\t\t\tto = -pid\n", New: ""},
			},
			test: "command TestSignalsLive", root: true,
		}},
	},
	{
		what: "A call is under way when the configuration it is for ends: its descriptors' numbers have been given to other files by then",
		seen: "mcastlab",
		bugs: []bug{
			{
				wrong: "A loop that was stopped takes a rate and wakes a closed number",
				edits: []patch.Edit{
					{File: "drivers/live/wait_linux.go", Old: "\tif w.gone {\n", New: "\tif false {\n"},
					{File: "drivers/live/loop.go", Old: "\tif l.stop {\n\t\treturn Lag{}, false\n\t}\n", New: ""},
				},
				test: "drivers/live TestStoppedLoop",
			},
			{
				wrong: "A loop that was stopped receives from a number that it has no more",
				edits: edit("drivers/live/loop.go", "\tif l.stop {\n\t\tl.mu.Unlock()\n\t\treturn false\n\t}\n", ""),
				test:  "drivers/live TestStoppedLoop",
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
					{File: "nodeagent/agent_linux.go", Old: "\ta.node = n\n\treturn &nodeapi.ConfigureReply", New: "\ta.node = n\n\ta.fence.Raise(r.Epoch)\n\treturn &nodeapi.ConfigureReply"},
				},
				test: "nodeagent TestFenceBeforeNode",
			},
			{
				wrong: "A call without an epoch is not waited for",
				edits: edit("internal/nodeapi/fence.go", "\tif epoch == 0 && !slices.Contains(leaders, info.FullMethod) {\n",
					"\tif epoch == 0 && (f.Highest() == 0 || !slices.Contains(leaders, info.FullMethod)) {\n"),
				test: "internal/nodeapi TestFenceWithoutEpoch",
			},
		},
	},
	{
		what: "The display of a run's progress looks at what the run writes, and several ranks take steps at once",
		seen: "mcastlab",
		bugs: []bug{
			{
				wrong: "What is shown has no lock",
				edits: edit("orchestrator/dilated/run.go", "func (s *progressState) get() runner.ProgressState {\n\ts.mu.Lock()\n\tdefer s.mu.Unlock()\n", "func (s *progressState) get() runner.ProgressState {\n"),
				test:  "orchestrator/dilated TestProgressWhileStepping", race: true,
			},
			{
				wrong: "Each rank that reports takes its step at once",
				edits: edit("orchestrator/dilated/out_of_band.go", "\tb.stepping.Lock()\n\tdefer b.stepping.Unlock()\n", ""),
				test:  "orchestrator/dilated TestStepsOneByOne",
			},
		},
	},
	{
		what: "What a crash has to end is ended later, when it is something else",
		seen: "mcastlab",
		bugs: []bug{{
			wrong: "A goroutine ends the tasks of the host that crashed, whichever there are by then",
			edits: edit("nodeagent/target_linux.go", "\treturn lost // the job", "\tgo n.host.Stop()\n\treturn lost // the job"),
			test:  "nodeagent TestCrashBeforeJob",
		}},
	},
	{
		what: "Events that were lost on the way are not told, and the rest is taken for all",
		seen: "mcastlab",
		bugs: []bug{{
			wrong: "What nodes had no room for is counted and not looked at",
			edits: edit("orchestrator/dilated/event_merger.go", "max(n.events.now, n.events.first, b.Cut), ", "n.events.first, "),
			test:  "orchestrator/dilated TestMissingEvents",
		}},
	},
	{
		what: "A clock is taken for a promise that nothing earlier comes, which who is late cannot keep",
		seen: "mcastlab",
		bugs: []bug{
			{
				wrong: "Events are written up to the clock of the latest batches",
				edits: edit("orchestrator/dilated/event_merger.go", "\t\tlimit = min(limit, m.nodes[i].before)\n", "\t\tlimit = min(limit, m.nodes[i].until)\n"),
				test:  "orchestrator/dilated TestMerge",
			},
			{
				wrong: "A node's batches are put one after the other",
				edits: edit("orchestrator/dilated/event_merger.go", "\t\tslices.SortStableFunc(n.held, func(a, b *nodeapi.Event) int { return cmp.Compare(a.Lab, b.Lab) })\n", "\t\t_, _ = cmp.Compare(0, 0), slices.Max([]int{0})\n"),
				test:  "orchestrator/dilated TestMerge",
			},
		},
	},
	{
		what: "A process that dies is taken for a machine that is switched off: nobody brings it back, its links stay up, or those who cannot bring it back say that they do",
		seen: "mcastlab",
		bugs: []bug{
			{
				wrong: "A simulation ends before the process is started again, and the next workload begins without it",
				edits: edit("faults/timeline.go", "max(keep, e.keepEnd())", "max(keep, KeepWhile)"),
				test:  "drivers/sim TestAgentCrash",
			},
			{
				wrong: "The links of a node that has no process have a carrier",
				edits: edit("faults/kind.go", "return k == KindCrash || k == KindAgentCrash", "return k == KindCrash"),
				test:  "faults TestTimeline",
			},
			{
				wrong: "A lab that is up takes the kind and does nothing of the sort",
				edits: edit("nodeagent/successor_linux.go", "\tt.n.leaving.Store(true)\n\tlost = t.Restart(now, node)\n\tt.n.loop.Halt()\n", "\tlost = t.Restart(now, node)\n"),
				test:  "nodeagent TestSwitchSuccessor",
			},
			{
				wrong: "What the process before has counted is lost with it",
				edits: edit("nodeagent/successor_linux.go", "\tn.before = &x.Counted\n", ""),
				test:  "nodeagent TestSwitchSuccessor",
			},
			{
				wrong: "The new process admits leaders of the past",
				edits: edit("nodeagent/successor_linux.go", "\ta.fence.Raise(x.Epoch)\n", ""),
				test:  "nodeagent TestSwitchSuccessor",
			},
			{
				wrong: "The new process forgets what faults are still to come, and when they end",
				edits: edit("faults/state.go", "\t\tt.await(p)\n", "\t\t_ = p\n"),
				test:  "faults TestState",
			},
		},
	},
}
