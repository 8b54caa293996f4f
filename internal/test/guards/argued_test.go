package guards

// argued are guards that no input can fire, each with what it is for.
var argued = map[string]string{
	"drivers/sim/check.go walk: depth == 0": "A tree with a loop cannot be installed: in one attempt a switch is entered by one port and goes by one set of routes " +
		"(virtswitch/registration.go). Should that rule break, the walk of the checker ends here instead of never.",
	"drivers/sim/checktree.go follow: w.entered[far.Node]": "Invariant 8, for a switch that registers otherwise: bug-bank patches and mutants fire it.",
	"drivers/sim/check.go afterEvent: len(g.Paths) > ports": "Invariant 6. A switch keeps one path per port, in a table that is indexed by port, so that no input makes it keep more; " +
		"the check is for a switch that is written differently.",
	"drivers/sim/schedule.go NewSchedule: err != nil": "Only the settings of a switch can be refused, and the simulation of a schedule has none. The check is for a simulation " +
		"that refuses something else one day.",
	"drivers/sim/loop.go step: at < n.now": "The event queue gives keys in order, and nothing is scheduled before now. An event of the past would be a mistake in one of the two, " +
		"which must not pass as a result.",
	"drivers/sim/task.go runTasks: t.done": "A task is put into the list of those that are ready only if it is parked, and it leaves the list before it runs. " +
		"The check is for a job that is ended from outside while one of its tasks is listed.",
}
