"""Reader of the XML description of a node that NCCL reads from ``NCCL_TOPO_FILE`` or writes to ``NCCL_TOPO_DUMP_FILE``.

An element ``cpu`` is a NUMA node, ``pci`` is a bridge or a device, and ``gpu``, ``nic`` and ``net`` are the functions
of a device (src/graph/xml.cc of NCCL 2.22).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from autotuner.catalog.topology.topology import FileKind, Topology, groups_of, nearest_ports, nvlink_mesh, sockets_of
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Groups, Port, PortPath, Wiring

_NVSWITCH = "0x068000"
"""PCI class of a bridge. NVLinks to an NVSWITCH have this class in their attribute ``tclass``."""

_INTEL_BY_MODEL = ((0xCF, 40e9), (0x8F, 22e9), (0x55, 10e9), (0, 6e9))
_SOCKETS_BY_VENDOR = {"AuthenticAMD": 16e9, "CentaurHauls": 6e9}
_SOCKETS_BY_ARCHITECTURE = {"arm64": 6e9, "ppc64": 32e9}
"""Bytes per second between two sockets, by vendor and architecture, and for Intel by the smallest model number. The
values are those of NCCL 2.22: ncclTopoGetInterCpuBw of src/graph/topo.cc, and ERP_QPI_BW, SRP_QPI_BW, SKL_QPI_BW,
BDW_QPI_BW, AMD_BW, ARM_BW, P9_BW of src/graph/topo.h."""

_SLOWEST_PORT_SHARE = 0.5
"""Share of the fastest port's rate. Slower ports are not used for training, such as 1 Gbit/s next to 200 Gbit/s."""

_DEEPEST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Element:
    """An element of the XML file, with the elements that contain it."""

    tag: str
    number: int
    """Line number of the element in the file, from 1."""
    attributes: Mapping[str, str]
    inside: tuple[_Element, ...] = field(default=(), repr=False)
    """Elements that contain this one, the outermost first."""

    def around(self, tag: str) -> _Element | None:
        """Return the outermost element with this tag that contains this one; None if there is none."""
        return next((each for each in self.inside if each.tag == tag), None)

    def whole(self, name: str, default: int | None = None) -> int:
        """Return the whole number in an attribute, which is decimal or begins with 0x.

        Raises:
            InvalidInput: The attribute is not a whole number, or it is missing and there is no default.
        """
        text = self.attributes.get(name)
        if text is None and default is not None:
            return default
        try:
            return int(text or "", 0)
        except ValueError as error:
            rule = f"must be a whole number, because it is the {name} of <{self.tag}>"
            if text is None:
                rule = f"is missing: <{self.tag}> needs the attribute {name}, a whole number"
            raise InvalidInput(f"line {self.number}", text, rule) from error


def read_nccl_xml(text: str) -> Topology:
    """Return the wiring of the node that an XML topology file of NCCL describes.

    Args:
        text: Text of a file that NCCL writes to ``NCCL_TOPO_DUMP_FILE``. If it describes several hosts, the first
            one is read.

    Raises:
        InvalidInput: The text is not XML, or does not describe a node. The error names the line.
    """
    elements = _of_one_host(_elements(text))
    gpus = _by_number(elements)
    wiring = Wiring(
        name="nccl",
        nvlink_groups=_nvlinks(elements, gpus),
        switches=groups_of(((each, ("bridge", id(gpu.around("pci") or gpu))) for each, gpu in gpus.items()), gpus),
        sockets=sockets_of(((each, ("cpu", id(gpu.around("cpu")))) for each, gpu in gpus.items()), gpus),
        ports=_ports(elements, gpus),
        pcie_bandwidth_bytes_per_s=_pcie_bandwidth(gpus),
        socket_bandwidth_bytes_per_s=_socket_bandwidth(elements),
        source=FileKind.NCCL_XML.value,
    )
    mesh_peers, notes = _mesh(gpus, elements)
    if not wiring.pcie_bandwidth_bytes_per_s:
        notes = (*notes, "the speed of PCIe is not given: taken as the accelerator's")
    return Topology(
        kind=FileKind.NCCL_XML, wiring=wiring, num_accelerators=len(gpus), mesh_peers=mesh_peers, notes=notes
    )


# ---------------------------------------------------------------- elements with their lines
def _elements(text: str) -> list[_Element]:
    """Return all elements in the order in which they begin.

    The expat parser knows their line numbers, and no XML entity is expanded.
    """
    parser, found, open_ = expat.ParserCreate(), list[_Element](), list[_Element]()

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if len(open_) >= _DEEPEST:
            raise InvalidInput(
                f"line {parser.CurrentLineNumber}",
                tag,
                f"is nested too deeply: a topology of NCCL has at most {_DEEPEST} levels of elements",
            )
        element = _Element(tag=tag, number=parser.CurrentLineNumber, attributes=attributes, inside=tuple(open_))
        found.append(element)
        open_.append(element)

    def refuse(name: str, *_: object) -> None:
        rule = "is the name in a DOCTYPE line, which a topology of NCCL does not have; remove that line"
        raise InvalidInput(f"line {parser.CurrentLineNumber}", name, rule)

    parser.StartElementHandler, parser.EndElementHandler = begin, lambda _: open_.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        rule = f"must be XML: {expat.ErrorString(error.code)}"
        lines = text.splitlines()[error.lineno - 1 : error.lineno]
        raise InvalidInput(f"line {error.lineno}", "".join(lines).strip()[:60], rule) from error
    if found[0].tag != "system":
        raise InvalidInput(
            f"line {found[0].number}",
            found[0].tag,
            "must be system, the name of the first element of a topology of NCCL",
            "system",
        )
    return found


def _of_one_host(elements: list[_Element]) -> list[_Element]:
    """Return the elements of the first host, if several nodes were written into one file."""
    hosts = [each.attributes["host_hash"] for each in elements if each.tag == "cpu" and "host_hash" in each.attributes]
    if len(set(hosts)) < 2:
        return elements
    cpus = {id(each): each.attributes.get("host_hash", hosts[0]) for each in elements if each.tag == "cpu"}
    return [each for each in elements if cpus.get(id(each.around("cpu") or each), hosts[0]) == hosts[0]]


def _by_number(elements: list[_Element]) -> dict[int, _Element]:
    """Return the elements of the accelerators, by accelerator number."""
    gpus: dict[int, _Element] = {}
    for element in (each for each in elements if each.tag == "gpu"):
        number = element.whole("dev", len(gpus))
        if number in gpus:
            free = next(each for each in range(len(gpus) + 1) if each not in gpus)
            raise InvalidInput(f"line {element.number}", number, "is already the number of another gpu", free)
        gpus[number] = element
    if sorted(gpus) != list(range(len(gpus))) or not gpus:
        last = elements[-1].number
        rule = "are the dev attributes of the gpu elements, which must be numbered from 0 without a gap"
        if not gpus:
            raise InvalidInput(
                f"line {last}",
                elements[-1].tag,
                "is the last element of the file, but a topology of NCCL must have at least one gpu element",
            )
        raise InvalidInput(f"line {last}", sorted(gpus), rule, list(range(len(gpus))))
    return dict(sorted(gpus.items()))


# ---------------------------------------------------------------- what accelerators share
def _nvlinks(elements: list[_Element], gpus: Mapping[int, _Element]) -> Groups:
    """Return the groups of accelerators that NVLinks join, directly or through the same switches."""
    by_bus = {_bus(gpu): number for number, gpu in gpus.items()}
    numbers = {id(gpu): number for number, gpu in gpus.items()}
    pairs: list[tuple[object, object]] = []
    for link in (each for each in elements if each.tag == "nvlink" and each.inside):
        number = numbers.get(id(link.inside[-1]))
        target = link.attributes.get("target", "").lower()
        if number is None:
            raise InvalidInput(
                f"line {link.number}",
                link.inside[-1].tag,
                "must not contain an nvlink element, because only a gpu element may contain one",
            )
        if target in by_bus:
            pairs.append((number, by_bus[target]))
        elif link.attributes.get("tclass") == _NVSWITCH:
            pairs.append((number, f"switch {target}"))
    return groups_of(pairs, gpus)


def _mesh(gpus: Mapping[int, _Element], elements: list[_Element]) -> tuple[int, tuple[str, ...]]:
    """Return the number of peers of each accelerator in an NVLink mesh, and a note.

    In a mesh, each accelerator has as many NVLinks to every other one; otherwise the number is 0.
    """
    buses = {_bus(gpu) for gpu in gpus.values()}
    links = [each for each in elements if each.tag == "nvlink" and each.attributes.get("target", "").lower() in buses]
    counts, peers = {link.whole("count", 1) for link in links}, len(gpus) - 1
    if len(counts) != 1 or len(links) != len(gpus) * peers:
        return 0, ()
    return nvlink_mesh(counts.pop(), peers)


def _bus(gpu: _Element) -> str:
    return gpu.inside[-1].attributes.get("busid", "").lower() if gpu.inside else ""


# ---------------------------------------------------------------- rates
def _ports(elements: list[_Element], gpus: Mapping[int, _Element]) -> tuple[Port, ...]:
    """Return the network ports that are nearest to some accelerator.

    Slow ports are left out, because they are not for training.
    """
    nets = [each for each in elements if each.tag == "net"]
    speeds_mbit = {id(net): net.whole("speed", 0) for net in nets}
    fastest = max(speeds_mbit.values(), default=0)
    used = [net for net in nets if speeds_mbit[id(net)] >= _SLOWEST_PORT_SHARE * fastest]
    names = {id(net): net.attributes.get("name") or f"net{place}" for place, net in enumerate(used)}
    paths = {names[id(net)]: {number: _path(net, gpu) for number, gpu in gpus.items()} for net in used}
    return nearest_ports(paths, {names[id(net)]: speeds_mbit[id(net)] * 1e6 / 8 or None for net in used})


def _path(net: _Element, gpu: _Element) -> PortPath:
    bridges = net.around("pci"), gpu.around("pci")
    if bridges[0] is not None and bridges[0] is bridges[1]:
        return "pcie_switch"
    return "host_bridge" if net.around("cpu") is gpu.around("cpu") else "sockets"


def _pcie_bandwidth(gpus: Mapping[int, _Element]) -> float | None:
    """Return the bytes per second of the slowest accelerator's PCIe link, in one direction.

    None if any accelerator does not state its rate.
    """
    rates = [_pcie_rate(gpu.inside[-1]) if gpu.inside else 0.0 for gpu in gpus.values()]
    return min(rates) or None


def _pcie_rate(device: _Element) -> float:
    """Return the bytes per second of a PCIe link, from its rate such as ``16.0 GT/s PCIe`` and its number of lanes.

    The coding is 8b/10b below 8 GT/s, otherwise 128b/130b.
    """
    speed = next(iter(device.attributes.get("link_speed", "").split()), "0")
    where = f"line {device.number}"
    try:
        transfers_per_s, width = float(speed) * 1e9, device.whole("link_width", 0)
    except ValueError as error:
        raise InvalidInput(where, speed, "must be the rate of PCIe, such as 16.0 GT/s PCIe") from error
    if not 0 <= transfers_per_s < 1e15 or not 0 <= width <= 32:
        raise InvalidInput(
            where, f"{speed} x {width}", "must be a rate of PCIe and a width of 0 to 32 lanes, such as 16.0 x 16"
        )
    return transfers_per_s * width / 8 * (0.8 if transfers_per_s < 8e9 else 128 / 130)


def _socket_bandwidth(elements: list[_Element]) -> float:
    """Return the bytes per second between sockets, for the first processor whose vendor or architecture is known."""
    for cpu in (each for each in elements if each.tag == "cpu"):
        vendor, architecture = cpu.attributes.get("vendor", ""), cpu.attributes.get("arch", "")
        if vendor == "GenuineIntel":
            model = max(0, cpu.whole("modelid", 0))
            return next(rate for least, rate in _INTEL_BY_MODEL if model >= least)
        if (rate := _SOCKETS_BY_VENDOR.get(vendor) or _SOCKETS_BY_ARCHITECTURE.get(architecture)) is not None:
            return rate
    return _SOCKETS_BY_VENDOR["AuthenticAMD"]
