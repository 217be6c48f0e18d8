"""Two nodes on this machine, joined by a link of a given speed: network namespaces, a veth pair and ``tc tbf``.

Needs root. Nothing has a name outside of its process: whatever ends this program, the kernel removes both nodes.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from types import TracebackType

INTERFACE = "eth0"
"""What a node's interface is called."""

_NEW_NET = 0x4000_0000  # CLONE_NEWNET of linux/sched.h
_ADDRESS = "10.78.0.{}/24"
_MTU = 9_000
"""Jumbo frames, as between nodes of a cluster: headers are 0.8 % of what is sent."""
_BURST_BYTES, _QUEUE_BYTES = 65_536, 16_000_000
"""More than a frame at once, and a queue that holds what both ranks of a node send: nothing is lost and sent again."""


class TwoNodes:
    """Both nodes, until they are left.

    Raises:
        subprocess.CalledProcessError: This machine gives no network namespaces, or has no ``tbf``.
    """

    def __init__(self, bits_per_s: float | None) -> None:
        """Joined by a link that carries so much each way; None: as much as the machine copies."""
        self._bits_per_s = bits_per_s
        self._holders: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> TwoNodes:
        self._holders = [_holder() for _ in range(2)]
        first, second = (holder.pid for holder in self._holders)
        _in_node(first, f"ip link add {INTERFACE} type veth peer name {INTERFACE} netns {second}")
        for number, pid in enumerate((first, second), start=1):
            _in_node(pid, "ip link set lo up")
            # an acknowledgement that comes late on busy cores is no loss: no segment is sent again to make sure
            _in_node(pid, "sysctl -q -w net.ipv4.tcp_early_retrans=0")
            _in_node(pid, f"ip addr add {_ADDRESS.format(number)} dev {INTERFACE}")
            _in_node(pid, f"ip link set {INTERFACE} mtu {_MTU} up")
        if self._bits_per_s is not None:
            self.shape(self._bits_per_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for holder in self._holders:
            holder.kill()
            holder.wait()

    def shape(self, bits_per_s: float) -> None:
        """Let the link carry so much each way from now on, whatever is on it."""
        for holder in self._holders:
            limits = f"tbf rate {bits_per_s:.0f}bit burst {_BURST_BYTES} limit {_QUEUE_BYTES}"
            _in_node(holder.pid, f"tc qdisc replace dev {INTERFACE} root {limits}")

    def enter(self, node: int) -> None:
        """Make this process, of a single thread, one of the node, whose groups gloo then connects over the link."""
        with open(f"/proc/{self._holders[node].pid}/ns/net") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NEW_NET):
                raise OSError(ctypes.get_errno(), "this process cannot enter the node")
        os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE

    def sent_bytes(self, node: int) -> int:
        """What the node's interface has sent, headers included."""
        for line in Path(f"/proc/{self._holders[node].pid}/net/dev").read_text().splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == INTERFACE:
                return int(counters.split()[8])  # the ninth column of /proc/net/dev: bytes transmitted
        raise LookupError(f"the node has no {INTERFACE}")


def _holder() -> subprocess.Popen[bytes]:
    """A process that does nothing but hold a network of its own."""
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()  # from here on the network is its own
    return holder


def _in_node(pid: int, command: str) -> None:
    subprocess.run(["nsenter", "-t", str(pid), "-n", *command.split()], check=True)
