"""Networks of IP addresses that an operator lists in a setting."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from autotuner.core.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_LONGEST = 100
"""Number of characters of an invalid network that the error message repeats."""


def read_networks(text: str, setting: str) -> tuple[Network, ...]:
    """Return the networks in a comma-separated list, such as ``10.1.0.0/16, 127.0.0.1``.

    Raises:
        InvalidInput: An entry is not a network. The error names ``setting``, the setting with this list.
    """
    return tuple(_network(one, setting) for one in map(str.strip, text.split(",")) if one)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Return True if one of the networks contains the address.

    An IPv4-mapped IPv6 address counts as an IPv4 address.
    """
    one = read_address(address)
    return one is not None and is_held(unmapped(one), networks)


def is_held(address: Address, networks: Sequence[Network]) -> bool:
    """Return True if one of the networks contains the address.

    An IPv4-mapped IPv6 address is compared only with IPv6 networks.
    """
    return any(address in network for network in networks if network.version == address.version)


def household(address: str) -> str:
    """Return the part of an IP address that all machines of one customer of an internet provider share.

    It is the whole IPv4 address, or the network of the first 64 bits of an IPv6 address.

    A text that is not an address is returned unchanged.
    """
    if (one := read_address(address)) is None:
        return address
    plain = unmapped(one)
    return str(ip_network((plain, 64), strict=False)) if isinstance(plain, IPv6Address) else str(plain)


def read_address(text: str) -> Address | None:
    """Return the IP address that the text represents, or None if the text is not an IP address."""
    try:
        return ip_address(text.strip())
    except ValueError:
        return None


def unmapped(address: Address) -> Address:
    """Return the IPv4 address in an IPv4-mapped IPv6 address; other addresses are returned unchanged."""
    return address if isinstance(address, IPv4Address) else address.ipv4_mapped or address


def _network(text: str, setting: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        rule = f"must be networks such as 10.1.0.0/16, with commas between them ({str(error)[-_LONGEST:]})"
        raise InvalidInput(setting, text, rule) from error
