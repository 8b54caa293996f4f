# SPDX-License-Identifier: Apache-2.0

# Recomputes the ICRC of the RoCEv2 frames of a capture and compares it with what the frames
# carry: over IPv4 with scapy, over IPv6, which older versions of scapy do not know, with
# zlib over the fields that scapy finds. Usage: icrc.py FILE MAX. Prints "checked N wrong M".
import struct
import sys
import zlib

from scapy.all import Dot1Q, Ether, IPv6, PcapNgReader, UDP
from scapy.contrib.roce import BTH


def icrc6(frame, raw):
    """The ICRC of a frame over IPv6 (InfiniBand annex A17.3.3), as the number scapy reads."""
    ip = len(raw) - 40 - frame[UDP].len
    masked = bytearray(raw[ip:-4])
    masked[0] |= 0x0F
    for i in (1, 2, 3, 7, 46, 47, 52):  # traffic class, flow label, hop limit, UDP checksum, BTH byte 4
        masked[i] = 0xFF
    crc = zlib.crc32(b"\xff" * 8 + bytes(masked))
    return struct.unpack("!I", struct.pack("<I", crc))[0]


checked = wrong = 0
for pkt in PcapNgReader(sys.argv[1]):
    if checked >= int(sys.argv[2]):
        break
    if UDP not in pkt or pkt[UDP].dport != 4791:
        continue
    # The bytes after the UDP length are Ethernet padding, not part of the packet.
    raw = bytes(pkt)
    head = 14 + (4 if Dot1Q in pkt else 0) + (40 if IPv6 in pkt else 20)
    raw = raw[: head + pkt[UDP].len]
    frame = Ether(raw)
    if BTH not in frame:
        continue
    have = frame[BTH].icrc
    if IPv6 in frame:
        again = icrc6(frame, raw)
    else:
        del frame[BTH].icrc
        again = Ether(frame.build())[BTH].icrc
    checked += 1
    if have != again:
        wrong += 1
        print("frame %d: icrc %08x, computed %08x" % (checked, have, again), file=sys.stderr)
print("checked %d wrong %d" % (checked, wrong))
