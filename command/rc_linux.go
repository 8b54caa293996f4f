// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/endpoint"
	"github.com/mcastlab/mcastlab/lab"
)

// rcCommand is a small RC endpoint for experiments by hand.
func (p *program) rcCommand() *cli.Command {
	return &cli.Command{
		Name: "rc", Usage: "run a small RC endpoint on an interface of this server", OnUsageError: onUsage,
		Description: "For example, a receiver for a lab with an external host h3 behind one end of a veth pair:\n" +
			"   ip link add rc0 mtu 4200 type veth peer name rc1 mtu 4200; ip link set rc0 up; ip link set rc1 up\n" +
			"   mcastlab deploy --attach h3=rc1 LAB\n" +
			"   mcastlab rc recv --interface rc0 --ip 10.0.0.4 --remote-ip 10.254.0.1 --size 1MiB",
		Subcommands: []*cli.Command{p.rcVerb("send"), p.rcVerb("recv"), p.rcVerb("write")},
		Action: func(c *cli.Context) error {
			return usageError{fmt.Errorf("rc needs send, recv or write, not %q", c.Args().First())}
		},
	}
}

func (p *program) rcVerb(verb string) *cli.Command {
	name := "rc-" + verb
	text := func(flag, value, usage string) *cli.StringFlag {
		return &cli.StringFlag{Name: flag, Value: value, Usage: usage, EnvVars: envOf(name, flag)}
	}
	flags := []cli.Flag{
		text("interface", "", "interface of this server"), text("ip", "", "own address"),
		text("remote-ip", "", "address it is connected to: of a host, or of a group"),
		text("remote-qpn", "1", "queue pair it is connected to; a group takes any"),
		text("send-psn", "0", "PSN of the first packet sent"), text("receive-psn", "0", "PSN of the first packet expected"),
		text("size", "4MiB", "bytes of a message"), text("file", "", "what to send, or where to put what came; default: a pattern, nowhere"),
		&cli.IntFlag{Name: "count", Value: 1, Usage: "messages", EnvVars: envOf(name, "count")},
		&cli.IntFlag{Name: "mtu", Value: 4096, Usage: "path MTU: payload bytes per packet", EnvVars: envOf(name, "mtu")},
		text("rate", "1Gbps", "at which it sends"), text("timeout", "67ms", "retransmission timeout"),
	}
	if verb == "write" {
		flags = append(flags, text("va", "", "address of the remote memory"), text("rkey", "", "and its key"))
	}
	usage := map[string]string{
		"send": "send messages", "recv": "receive messages", "write": "write into the remote's memory",
	}
	return &cli.Command{
		Name: verb, Usage: usage[verb], OnUsageError: onUsage, Flags: flags,
		Description: "Its queue pair has the number 17. Times are wall time.",
		Action:      func(c *cli.Context) error { return p.rcAction(c, verb) },
	}
}

// rcArgs are the parsed flags.
type rcArgs struct {
	endpoint.Config
	size  int
	va    uint64
	rkey  uint32
	bytes []byte // to send
}

func rcParse(c *cli.Context, verb string) (a rcArgs, err error) {
	a.Interface, a.MTU, a.Traffic, a.Retries = c.String("interface"), c.Int("mtu"), 26<<2|wire.ECNECT0, 7
	a.Timeout, err = lab.ParseTimeout(c.String("timeout"))
	if err != nil {
		return a, err
	}
	switch a.MTU {
	case 256, 512, 1024, 2048, 4096:
	default:
		return a, fmt.Errorf("mtu of %d is not 256, 512, 1024, 2048 or 4096", a.MTU)
	}
	if err := a.addresses(c.String("ip"), c.String("remote-ip")); err != nil {
		return a, err
	}
	number := func(flag string, most uint64) (v uint64) {
		n, e := lab.ParseNumber(c.String(flag))
		if e == nil && uint64(n) > most {
			e = fmt.Errorf("%d is more than %d", n, most)
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", flag, e))
		}
		return uint64(n)
	}
	a.RemoteQPN = wire.QPN(number("remote-qpn", uint64(wire.QPNMask)))
	a.SendPSN, a.ReceivePSN = wire.PSN(number("send-psn", uint64(wire.PSNMask))), wire.PSN(number("receive-psn", uint64(wire.PSNMask)))
	if verb == "write" {
		a.va, a.rkey = number("va", 1<<64-1), uint32(number("rkey", 1<<32-1))
	}
	rate, rerr := lab.ParseRate(c.String("rate"))
	size, serr := lab.ParseSize(c.String("size"))
	a.Rate, a.size = int64(rate), int(size)
	if size > 1<<31 {
		serr = fmt.Errorf("size of %v is more than the 2GiB a RoCE message can have", size)
	}
	return a, errors.Join(err, rerr, serr)
}

// addresses takes over the two addresses, which are of one family.
func (a *rcArgs) addresses(own, remote string) error {
	v6 := false
	for i, x := range []struct {
		flag, text string
		to         *uint32
	}{{"ip", own, &a.IP}, {"remote-ip", remote, &a.Remote}} {
		ip, err := netip.ParseAddr(x.text)
		if err != nil || ip.Zone() != "" || ip.Is4In6() {
			return fmt.Errorf("%s: %q is not an IPv4 or IPv6 address", x.flag, x.text)
		}
		n, ok := wire.IPOf(ip)
		if !ok {
			return fmt.Errorf("%s: %v is not in a lab's IPv6 fabric: its addresses are those of fd6d:6361:7374::/96", x.flag, ip)
		}
		if i > 0 && ip.Is6() != v6 {
			return fmt.Errorf("ip %s and remote-ip %s are of different families", own, remote)
		}
		*x.to, v6 = n, ip.Is6()
	}
	a.IPv6 = v6
	return nil
}

func (p *program) rcAction(c *cli.Context, verb string) error {
	needs := []string{"interface", "ip", "remote-ip"}
	if verb == "write" {
		needs = append(needs, "va", "rkey")
	}
	if err := cmp.Or(noArgs(c), required(c, needs...)); err != nil {
		return err
	}
	if verb != "recv" && c.IsSet("file") {
		if err := p.refuse("has no effect with --file: the message is the whole file", "size"); err != nil {
			return err
		}
	}
	a, err := rcParse(c, verb)
	if err != nil {
		return usageError{err}
	}
	file := c.String("file")
	a.bytes = make([]byte, a.size)
	switch {
	case verb != "recv" && file != "":
		if a.bytes, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("read what to send: %w", err)
		}
	case verb != "recv":
		prng.Fill(a.bytes, 1, 0)
	}
	e, err := endpoint.Open(a.Config)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.errOut, "QP %d at %v is connected to QP %d at %v\n", e.Local(), e.Address(), a.RemoteQPN, e.Remote())
	err = p.rcMessages(c, verb, e, &a)
	s := e.Stats()
	fmt.Fprintf(p.errOut, "%d packets sent, %d received, %d sent again, %d timeouts\n", s.SentPkts, s.RcvdPkts, s.Retransmitted, s.Timeouts)
	if err = errors.Join(err, e.Close()); err == nil && verb == "recv" && file != "" {
		err = os.WriteFile(file, a.bytes, 0o644)
	}
	return err
}

// rcMessages moves the messages and says what each was.
func (p *program) rcMessages(c *cli.Context, verb string, e *endpoint.Endpoint, a *rcArgs) (err error) {
	for i := range c.Int("count") {
		begin, n := time.Now(), len(a.bytes)
		switch verb {
		case "send":
			err = e.Send(c.Context, a.bytes)
		case "write":
			err = e.Write(c.Context, a.bytes, a.va, a.rkey)
		case "recv":
			n, err = e.Recv(c.Context, a.bytes)
		}
		if err != nil {
			return fmt.Errorf("%s message %d: %w", verb, i+1, err)
		}
		fmt.Fprintf(p.out, "%s %d bytes in %v, SHA-256 %x\n", verb, n, time.Since(begin).Round(time.Microsecond), sha256.Sum256(a.bytes[:n]))
	}
	return nil
}
