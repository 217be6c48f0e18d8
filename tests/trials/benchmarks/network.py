"""A network of nodes on this machine, whose frames a process passes on: each pair of nodes has a delay of its own.

A node is a process in a network namespace of its own, whose one interface is a TAP device. What it sends into it the
process here reads, keeps for as long as the pair's link takes, and writes into the other node's: real frames, late.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import heapq
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Mapping
from itertools import count

from autotuner.core.link import LinkEnds, LinkHealth

INTERFACE = "eth0"
"""What a node's interface is called."""

_NEW_USER, _NEW_NET = 0x1000_0000, 0x4000_0000  # CLONE_NEWUSER, CLONE_NEWNET of linux/sched.h
_SET_INTERFACE, _TAP_WITHOUT_HEADER = 0x4004_54CA, 0x1002  # TUNSETIFF; IFF_TAP | IFF_NO_PI of linux/if_tun.h
_LONGEST_FRAME = 65_535
_MTU = 60_000
_ADDRESS = "10.77.0.{}"


def enter(node: int, to_network: socket.socket) -> None:
    """Make this process, of a single thread, the node of that number, and hand its interface to the network."""
    user = os.getuid()
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER | _NEW_NET):
        raise OSError(ctypes.get_errno(), "this machine gives no network namespace")
    with open("/proc/self/uid_map", "w") as mapped:
        mapped.write(f"0 {user} 1")
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, _SET_INTERFACE, struct.pack("16sH14x", INTERFACE.encode(), _TAP_WITHOUT_HEADER))
    for command in (
        "link set dev lo up",
        f"link set dev {INTERFACE} address {_hardware(node).hex(':')} mtu {_MTU} up",
        f"addr add {_ADDRESS.format(node + 1)}/24 dev {INTERFACE}",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    to_network.sendmsg([bytes([node])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [tap]))])
    os.close(tap)


def _hardware(node: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, node])


class Network:
    """Passes frames on until it is left; give every node's process one end of ``joining`` before."""

    def __init__(self, num_nodes: int, health: tuple[LinkHealth, ...] = ()) -> None:
        self._num_nodes = num_nodes
        self._health: Mapping[LinkEnds | None, LinkHealth] = {each.ends: each for each in health}
        self._here, self.joining = socket.socketpair()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._frames: list[tuple[float, int, int, bytes]] = []
        self._free_at: dict[tuple[int, int], float] = {}

    def __enter__(self) -> Network:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._here.close()
        self.joining.close()

    def _run(self) -> None:
        taps = dict(self._joined() for _ in range(self._num_nodes))
        nodes, order = {tap: node for node, tap in taps.items()}, count()
        while not self._ended.is_set():
            wait_s = max(0.0, self._frames[0][0] - time.monotonic()) if self._frames else 0.05
            for tap in select.select(list(nodes), [], [], min(wait_s, 0.05))[0]:
                self._take(nodes[tap], os.read(tap, _LONGEST_FRAME), order)
            while self._frames and self._frames[0][0] <= time.monotonic():
                _, _, receiver, frame = heapq.heappop(self._frames)
                os.write(taps[receiver], frame)
        for tap in nodes:
            os.close(tap)

    def _joined(self) -> tuple[int, int]:
        message, passed, _, _ = self._here.recvmsg(1, socket.CMSG_SPACE(4))
        (_, _, data), *_ = passed
        return message[0], int.from_bytes(data[:4], "little")

    def _take(self, sender: int, frame: bytes, order: count[int]) -> None:
        """Keep a frame for whom it is, or for all others."""
        known = [node for node in range(self._num_nodes) if _hardware(node) == frame[:6]]
        for receiver in known or [node for node in range(self._num_nodes) if node != sender]:
            due = self._due(sender, receiver, len(frame))
            heapq.heappush(self._frames, (due, next(order), receiver, frame))

    def _due(self, sender: int, receiver: int, num_bytes: int) -> float:
        health = self._health.get((min(sender, receiver), max(sender, receiver)))
        begins = now = time.monotonic()
        if health is None:
            return now
        if health.bandwidth_bytes_per_s is not None:
            begins = max(now, self._free_at.get((sender, receiver), now))
            self._free_at[sender, receiver] = begins = begins + num_bytes / health.bandwidth_bytes_per_s
        return begins + health.delay_s
