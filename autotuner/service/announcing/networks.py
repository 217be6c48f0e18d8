"""Which addresses may be posted to: those of the public internet, and networks that the operator allows.

A URL that somebody gave to the service is posted to from inside its network; it must not lead to what listens there.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from autotuner.service.networks import Address, Network

WEBHOOK_ALLOW = "AUTOTUNER_WEBHOOK_ALLOW"
"""The setting by which an operator allows more."""

_SPECIAL = tuple(
    ip_network(text)
    for text in (
        "168.63.129.16/32",  # answers virtual machines of Azure, whose documentation says so
        "192.0.0.0/24",  # IETF protocol assignments, RFC 6890; metadata of Oracle's cloud
        "192.88.99.0/24",  # 6to4 relays, deprecated by RFC 7526
        "3fff::/20",  # documentation, RFC 9637
    )
)
"""Counted as public by their number, or by this Python, and none of the public internet."""

_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""What IANA gives out of IPv6, RFC 4291 section 2.4."""

_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv4 addresses as a network without IPv4 names them, RFC 6052."""


def refusal(address: str, allowed: Sequence[Network]) -> str | None:
    """Why nothing is posted to that address, as a sentence; None where it may be."""
    one = ip_address(address)
    if is_public(one) or is_allowed(one, allowed):
        return None
    return f"{one} is {_kind(one)}, which only the operator can allow ({WEBHOOK_ALLOW})"


def is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    """Whether the operator named a network that holds it."""
    plain = _plain(address)
    return any(plain in network for network in allowed if network.version == plain.version)


def is_public(address: Address) -> bool:
    """Whether it is an address of one host of the public internet."""
    plain = _plain(address)
    if any(plain in network for network in _SPECIAL if network.version == plain.version):
        return False
    if isinstance(plain, IPv6Address) and (plain not in _GLOBAL_UNICAST or plain.sixtofour is not None):
        return False
    return plain.is_global and not plain.is_multicast and not plain.is_reserved


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, where it stands for one."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address


def _kind(address: Address) -> str:
    plain = _plain(address)
    kinds = {
        "the loopback address of the service's own machine": plain.is_loopback,
        "link-local, where clouds answer with credentials": plain.is_link_local,
        "a multicast address": plain.is_multicast,
        "a private address": plain.is_private and not plain.is_unspecified,
    }
    return next((kind for kind, is_so in kinds.items() if is_so), "no address of the public internet")
