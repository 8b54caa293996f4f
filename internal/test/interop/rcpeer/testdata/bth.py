# SPDX-License-Identifier: Apache-2.0

# Reads RoCEv2 frames over IPv4 in hexadecimal, one in a line, and prints of each the
# fields of its BTH and the ICRC that scapy computes for it:
# opcode, pad count, destination QPN, AckReq, PSN, ICRC as decimal numbers.
import sys

from scapy.all import Ether
from scapy.contrib.roce import BTH

for line in sys.stdin:
    frame = Ether(bytes.fromhex(line.strip()))
    b = frame[BTH]
    fields = [b.opcode, b.padcount, b.dqpn, int(b.ackreq), b.psn]
    del frame[BTH].icrc
    wire = bytes(Ether(frame.build()))[-4:]
    print(*fields, int.from_bytes(wire, "little"))
