# Recomputes the ICRC of the IPv4 RoCEv2 frames of a capture with scapy and compares it
# with what the frames carry. Usage: icrc.py FILE MAX. Prints "checked N wrong M".
import sys

from scapy.all import Ether, PcapNgReader, UDP
from scapy.contrib.roce import BTH

checked = wrong = 0
for pkt in PcapNgReader(sys.argv[1]):
    if checked >= int(sys.argv[2]):
        break
    if UDP not in pkt or pkt[UDP].dport != 4791:
        continue
    # The bytes after the UDP length are Ethernet padding, not part of the packet.
    raw = bytes(pkt)
    end = 14 + 20 + pkt[UDP].len
    frame = Ether(raw[:end])
    if BTH not in frame:
        continue
    have = frame[BTH].icrc
    del frame[BTH].icrc
    again = Ether(frame.build())[BTH].icrc
    checked += 1
    if have != again:
        wrong += 1
        print("frame %d: icrc %08x, scapy says %08x" % (checked, have, again), file=sys.stderr)
print("checked %d wrong %d" % (checked, wrong))
