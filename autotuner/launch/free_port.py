"""A port of this machine for ranks to meet at."""

from __future__ import annotations

import random
import socket

_PORTS = range(10_000, 20_000)
"""Below those that the kernel gives to connections (ip_local_port_range, from 32768): none takes it meanwhile."""

_CHOICE = random.SystemRandom()


def free_port() -> int:
    """One that nobody listens at now; another process may choose it too, with odds of one in ten thousand."""
    while True:
        port = _CHOICE.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port
