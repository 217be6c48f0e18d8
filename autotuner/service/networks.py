"""Networks as an operator names them in a setting."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from autotuner.core.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_LONGEST = 100
"""Number of characters of an illegal network that its error repeats."""


def read_networks(text: str, setting: str) -> tuple[Network, ...]:
    """The networks of a list with commas: ``10.1.0.0/16, 127.0.0.1``.

    Raises:
        InvalidInput: One of them is none; it names the setting.
    """
    return tuple(_network(one, setting) for one in map(str.strip, text.split(",")) if one)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Return True if one of the networks contains the address; an IPv4-mapped IPv6 address counts as IPv4."""
    one = read_address(address)
    return one is not None and is_held(unmapped(one), networks)


def is_held(address: Address, networks: Sequence[Network]) -> bool:
    """Return True if one of the networks contains the address, without unmapping it."""
    return any(address in network for network in networks if network.version == address.version)


def household(address: str) -> str:
    """Return what one customer of a provider has: an IPv4 address, or the first 64 bits of an IPv6 one."""
    if (one := read_address(address)) is None:
        return address
    plain = unmapped(one)
    return str(ip_network((plain, 64), strict=False)) if isinstance(plain, IPv6Address) else str(plain)


def read_address(text: str) -> Address | None:
    """The address of a text; None where it is none."""
    try:
        return ip_address(text.strip())
    except ValueError:
        return None


def unmapped(address: Address) -> Address:
    """The IPv4 address of an IPv4-mapped IPv6 address; others as they are."""
    return address if isinstance(address, IPv4Address) else address.ipv4_mapped or address


def _network(text: str, setting: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        rule = f"must be networks such as 10.1.0.0/16, with commas between them ({str(error)[-_LONGEST:]})"
        raise InvalidInput(setting, text, rule) from error
