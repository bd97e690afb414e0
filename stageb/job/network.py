"""Under which address, and by which interface, this machine reaches another; the standard library alone."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

ROUTES = Path("/proc/net/route")
IS_UP = 1  # RTF_UP of linux/route.h


def resolve(host: str) -> str:
    """The address that ``host`` resolves to on this machine, preferably IPv4. Raises OSError, UnicodeError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


def interface_to(address: ipaddress.IPv4Address) -> str | None:
    """The interface of the most specific route to ``address``; None without a route, or if routes are unknown (not Linux).

    This machine's own address counts as one of the network that it is in, and loopback as any remote address.
    """
    try:
        rows = [line.split() for line in ROUTES.read_text().splitlines()[1:]]
    except OSError:  # not Linux
        return None
    found = []
    for name, destination, _, flags, _, _, metric, mask, *_ in rows:
        network, bits = (int.from_bytes(bytes.fromhex(text)[::-1], "big") for text in (destination, mask))
        if int(address) & bits == network and int(flags, 16) & IS_UP:
            found.append((-bits, int(metric), name))
    return min(found)[2] if found else None
