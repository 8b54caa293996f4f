// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// TestWiresharkMembership: tshark finds in reports and queries of both families, with a tag and without, the values that were meant,
// and right checksums.
func TestWiresharkMembership(t *testing.T) {
	records := []wire.GroupRecord{{Type: wire.ChangeToExclude, Group: 0xef010203}, {Type: wire.ChangeToInclude, Group: 0xe4000001}}
	const (
		igmp = "ip.ttl=1 ip.dsfield.dscp=48 ip.hdr_len=24 ip.opt.ra=0 ip.checksum.status=1 igmp.checksum.status=1 ip.src=10.1.0.1 "
		mld  = "ipv6.hlim=1 ipv6.tclass.dscp=48 ipv6.opt.router_alert=0 icmpv6.checksum.status=1 ipv6.src=fe80::aff:fe01:1 "
	)
	var pool wire.Pool
	var all []formatBytes
	for _, tag := range []*wire.VLAN{nil, {PCP: 6, ID: 100}} {
		v4, v6 := wire.Reporter{IP: 0x0a010001, VLAN: tag}, wire.Reporter{IP: 0x0a010001, IPv6: true, VLAN: tag}
		vlan := ""
		if tag != nil {
			vlan = "vlan.id=100 vlan.priority=6 "
		}
		for _, c := range []struct {
			name, want string
			f          *wire.Frame
		}{
			{"IGMPv3 report", igmp + "ip.dst=224.0.0.22 igmp.type=0x22 igmp.num_grp_recs=2 igmp.record_type=4,3 igmp.maddr=239.1.2.3,228.0.0.1 igmp.num_src=0,0", v4.Report(&pool, records)},
			{"IGMPv3 query", igmp + "ip.dst=224.0.0.1 igmp.type=0x11 igmp.version=3 igmp.max_resp=100 igmp.maddr=0.0.0.0 igmp.qrv=2 igmp.qqic=125 igmp.num_src=0", v4.Query(&pool)},
			{"MLDv2 report", mld + "ipv6.dst=ff02::16 icmpv6.type=143 icmpv6.mldr.nb_mcast_records=2 icmpv6.mldr.mar.record_type=4,3 " +
				"icmpv6.mldr.mar.multicast_address=ff15::ef01:203,ff15::e400:1", v6.Report(&pool, records)},
			{"MLDv2 query", mld + "ipv6.dst=ff02::1 icmpv6.type=130 icmpv6.mld.maximum_response_code=10000 icmpv6.mld.multicast_address=:: icmpv6.mld.flag.qrv=2 icmpv6.mld.qqi=125", v6.Query(&pool)},
		} {
			all = append(all, formatBytes{c.name, c.f.AppendTo(nil), vlan + c.want})
			pool.Put(c.f)
		}
	}
	wiresharkFinds(t, all)
}
