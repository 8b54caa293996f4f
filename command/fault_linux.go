// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/orchestrator"
)

func (p *program) faultCommand() *cli.Command {
	return &cli.Command{
		Name: "fault", Usage: "add, list and reset faults in a running lab", OnUsageError: onUsage,
		Subcommands: []*cli.Command{p.faultAdd(), p.faultLs(), p.faultReset()},
		Action: func(c *cli.Context) error {
			return usageError{fmt.Errorf("fault needs add, ls or reset, not %q", c.Args().First())}
		},
	}
}

// settings are the values of a flag that may be given several times; unlike those of a
// slice flag they may contain commas.
type settings []string

// Set implements cli.Generic.
func (s *settings) Set(v string) error {
	*s = append(*s, v)
	return nil
}

// String implements cli.Generic.
func (s *settings) String() string { return strings.Join(*s, " ") }

// labVariable stands for --lab.
const labVariable = "MCASTLAB_LAB_NAME"

func labFlag() cli.Flag {
	return &cli.StringFlag{Name: "lab", Aliases: []string{"l"}, Usage: "name of the lab", DefaultText: "the only one that is up", EnvVars: []string{labVariable}}
}

// liveKinds returns the names of all kinds of faults.
func liveKinds() (all []string) {
	for _, k := range faults.Kinds() {
		all = append(all, string(k))
	}
	return all
}

// kindList names all kinds of faults.
func kindList() string {
	return strings.Join(liveKinds(), ", ")
}

func (p *program) faultAdd() *cli.Command {
	const name = "fault-add"
	return &cli.Command{
		Name: "add", Usage: "add a fault", ArgsUsage: "KIND", OnUsageError: onUsage,
		Description: "KIND is one of " + kindList() + ".\n" +
			"The keys are those of the lab file (docs/faults.md). Times are lab time, from now on. For example\n" +
			"  mcastlab fault add loss --link 'h0-*' --rate 1% --for 10ms\n" +
			"  mcastlab fault add crash --node leaf1 --dry-run\n" +
			"It prints the id of the fault, for fault reset.",
		Flags: []cli.Flag{
			labFlag(),
			&cli.StringFlag{Name: "link", Usage: "links: a:1-b:2, agg*-core*, re:^h[0-3]-, tier:leaf-agg, label:rack1", EnvVars: envOf(name, "link")},
			&cli.StringFlag{Name: "node", Usage: "hosts or switches: h3, h0..h7, agg*, re:..., tier:core, label:rack1", EnvVars: envOf(name, "node")},
			&cli.StringFlag{Name: "controller", Usage: "controllers: controller0, controller*", EnvVars: envOf(name, "controller")},
			&cli.StringFlag{Name: "rate", Usage: "probability per frame, 0.01 or 1%; bits per second of rate-cut and slow-receiver", EnvVars: envOf(name, "rate")},
			&cli.StringFlag{Name: "delay", Usage: "extra delay of a frame", EnvVars: envOf(name, "delay")},
			&cli.IntFlag{Name: "priority", Value: 3, Usage: "class that is paused", EnvVars: envOf(name, "priority")},
			&cli.GenericFlag{Name: "set", Value: &settings{}, Usage: "another key of the fault kind: nth=[3], frames={kind: ack, from: h7}", EnvVars: envOf(name, "set")},
			&cli.StringFlag{Name: "at", Usage: "delay before the fault starts", EnvVars: envOf(name, "at")},
			&cli.StringFlag{Name: "for", Usage: "duration; default: until fault reset", EnvVars: envOf(name, "for")},
			&cli.StringFlag{Name: "every", Usage: "repeat this long after the last start", EnvVars: envOf(name, "every")},
			&cli.Float64Flag{Name: "probability", Value: 1, Usage: "probability that the fault occurs, drawn for each occurrence", EnvVars: envOf(name, "probability")},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the affected links or nodes and exit", EnvVars: envOf(name, "dry-run")},
		},
		Action: p.faultAddAction,
	}
}

func (p *program) faultAddAction(c *cli.Context) error {
	if err := oneArg(c, "one kind ("+kindList()+")"); err != nil {
		return err
	}
	if kind := c.Args().First(); !faults.Kind(kind).Known() {
		return usageError{fmt.Errorf("fault add: no fault kind %q%s", kind, setting.Suggest(kind, liveKinds()))}
	}
	d, err := p.attach(c)
	if err != nil {
		return err
	}
	f, err := p.faultFromFlags(c, d.Lab)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		if err := p.writeTargets(d.Lab, d.Graph, f); err != nil {
			return err
		}
		return d.Close()
	}
	now, err := d.Now(c.Context)
	if err != nil {
		return err
	}
	m, err := d.FaultOf(f, c.Args().First()+"-"+strconv.FormatInt(time.Now().UnixMilli(), 36))
	if err != nil {
		return err
	}
	if err := d.AddFaults(c.Context, []*nodeapi.Fault{m}, now); err != nil {
		return err
	}
	fmt.Fprintln(p.out, m.Id)
	return d.Close()
}

// writeTargets prints the links or nodes of a fault, one a line.
func (p *program) writeTargets(l *lab.Lab, g *topo.Graph, f *lab.Fault) error {
	s, err := labspec.Fault(l, g, f, "")
	if err != nil {
		return err
	}
	for _, w := range s.Where(g) {
		fmt.Fprintln(p.out, w)
	}
	return nil
}

// faultFromFlags reads a fault through the lab file's own rules, so that both mean the
// same and are checked alike.
func (p *program) faultFromFlags(c *cli.Context, l *lab.Lab) (*lab.Fault, error) {
	kind := c.Args().First()
	links := faults.Kind(kind).OfLinks()
	var in []string
	put := func(flag, key string) {
		if c.IsSet(flag) {
			in = append(in, fmt.Sprintf("%s: %q", key, c.String(flag)))
		}
	}
	put("link", "links")
	put("controller", "controllers")
	switch faults.Kind(kind) {
	case faults.KindPause, faults.KindPauseStorm:
		put("node", "node")
		in = append(in, fmt.Sprintf("priority: %d", c.Int("priority")))
	default:
		put("node", "nodes")
		if err := p.refuse("is for pause and pause-storm", "priority"); err != nil {
			return nil, err
		}
	}
	if c.IsSet("rate") {
		in = append(in, "rate: "+c.String("rate"))
	}
	put("delay", "delay")
	for _, s := range *c.Generic("set").(*settings) {
		k, v, ok := strings.Cut(s, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("fault add: --set %q is not key=value", s)}
		}
		in = append(in, k+": "+v)
	}
	if links && c.IsSet("node") {
		return nil, usageError{fmt.Errorf("fault add: %s applies to links: name them with --link", kind)}
	}
	entry := []string{fmt.Sprintf("%q: {%s}", kind, strings.Join(in, ", "))}
	for _, k := range []string{"at", "for", "every"} {
		if c.IsSet(k) {
			entry = append(entry, fmt.Sprintf("%s: %q", k, c.String(k)))
		}
	}
	if c.IsSet("probability") {
		entry = append(entry, "probability: "+strconv.FormatFloat(c.Float64("probability"), 'g', -1, 64))
	}
	f, err := l.ParseFault("{" + strings.Join(entry, ", ") + "}")
	if err != nil {
		return nil, usageError{fmt.Errorf("fault add %s: %w", kind, err)}
	}
	return f, nil
}

func (p *program) faultLs() *cli.Command {
	return &cli.Command{
		Name: "ls", Usage: "list the active faults and the frames or nodes that they hit", OnUsageError: onUsage,
		Flags: listFlags("fault-ls"),
		Action: p.listing(func(c *cli.Context, d *orchestrator.Deployed, asJSON bool) error {
			all, err := d.Faults(c.Context)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(p.out, map[string]any{"schema": "mcastlab/faults/v1", "faults": faultRows(all)})
			}
			return p.writeFaults(all)
		}),
	}
}

// faultRow is a fault as fault ls --json writes it.
type faultRow struct {
	ID      string   `json:"id,omitempty"`
	Entry   string   `json:"entry,omitempty"`
	Kind    string   `json:"kind,omitempty"`
	On      bool     `json:"on,omitempty"`
	Over    bool     `json:"over,omitempty"`
	Seen    uint64   `json:"seen,omitempty"`
	Hit     uint64   `json:"hit,omitempty"`
	Applied []string `json:"applied,omitempty"`
}

func faultRows(all []*nodeapi.Fault) (rows []faultRow) {
	for _, f := range all {
		rows = append(rows, faultRow{f.Id, f.Text, f.Kind, f.On, f.Over, f.Seen, f.Hit, f.Applied})
	}
	return rows
}

func (p *program) writeFaults(all []*nodeapi.Fault) error {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tSEEN\tHIT\tWHAT\tAPPLIED-AT")
	for _, f := range all {
		state := "off"
		switch {
		case f.On:
			state = "on"
		case f.Over:
			state = "over"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", f.Id, state, f.Seen, f.Hit, f.Text, strings.Join(f.Applied, ","))
	}
	return w.Flush()
}

func (p *program) faultReset() *cli.Command {
	return &cli.Command{
		Name: "reset", Usage: "remove all faults, or those whose id begins with ID", ArgsUsage: "[ID]", OnUsageError: onUsage,
		Description: "mcastlab fault ls lists the ids. The lab file's faults have ids, too: lab-0, lab-1.",
		Flags:       []cli.Flag{labFlag()},
		Action: func(c *cli.Context) error {
			if c.Args().Len() > 1 {
				return oneArg(c, "one id or the beginning of several")
			}
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			if err := d.ResetFaults(c.Context, c.Args().First()); err != nil {
				return err
			}
			return d.Close()
		},
	}
}

// attach connects to the lab that --lab names, or to the only running one, whose name it prints.
func (p *program) attach(c *cli.Context) (*orchestrator.Deployed, error) {
	name, why := c.String("lab"), "named by "+labVariable
	if name == "" {
		labs, err := orchestrator.List(c.Context, engines())
		if err != nil {
			return nil, err
		}
		if len(labs) != 1 {
			var names []string
			for _, l := range labs {
				names = append(names, l.Name)
			}
			return nil, usageError{fmt.Errorf("%d labs are up: %s", len(labs), whichLab(names))}
		}
		name, why = labs[0].Name, "the only one that is up"
	}
	if !lab.NameOK(name) {
		return nil, usageError{fmt.Errorf("%q cannot be the name of a lab: --lab takes a name that mcastlab inspect lists", name)}
	}
	e, err := orchestrator.EngineOf(name, engines())
	if err != nil {
		return nil, err
	}
	if p.onLine("lab", "l") == "" {
		p.say("lab: %s, %s", name, why)
	}
	return orchestrator.Attach(name, orchestrator.Options{Engine: e})
}

// whichLab returns the remedy for a missing --lab where no lab, or more than one, is up.
func whichLab(names []string) string {
	if len(names) == 0 {
		return "bring one up with mcastlab deploy"
	}
	return "say which with --lab: " + strings.Join(names, ", ")
}

// hasNode returns an error unless the lab has such a node, or such a controller.
func hasNode(d *orchestrator.Deployed, name string) error {
	if _, ok := d.Graph.Find(name); ok || slices.Contains(d.Lab.Replicas(), name) {
		return nil
	}
	return usageError{fmt.Errorf("lab %s has no node %s: mcastlab inspect %s lists them", d.Lab.Name, name, d.Lab.Name)}
}
