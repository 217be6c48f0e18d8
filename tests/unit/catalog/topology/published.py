"""Topologies that were published, typed anew from what they say: the facts of real nodes and of Slurm's own pages."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = [
    "A100_PAIRS",
    "DGX_A100",
    "DGX_H100",
    "HYPERPOD_YAML",
    "IBM_H100",
    "NERSC_A100",
    "SLURM_BLOCKS",
    "SLURM_TREE",
    "SOPERATOR_YAML",
]


def _matrix(cells: dict[str, str], near: dict[str, str], key: str = "") -> str:
    """A matrix as nvidia-smi prints it: devices with their cells, what GPUs are near to, and the names of ports."""
    lines = ["\t" + "\t".join(cells) + "\tCPU Affinity\tNUMA Affinity"]
    lines += [
        f"{device}\t" + "\t".join(said.split()) + (f"\t{near[device]}" if device in near else "")
        for device, said in cells.items()
    ]
    return "\n".join(lines) + "\n\nLegend:\n\n  X    = Self\n  PIX  = Connection traversing at most one bridge\n" + key


def _dgx_a100() -> str:
    """NVIDIA DGX A100: what ``nvidia-smi topo -m`` prints there (docs of its user guide and of many owners).

    Two GPUs and two ports below each pair of PCIe switches, four NUMA nodes of eight, two ports of storage (mlx5_4,
    mlx5_5 and mlx5_10, mlx5_11 of the twelve) below bridges of their own.
    """
    gpus, ports = [f"GPU{number}" for number in range(8)], [f"mlx5_{number}" for number in range(10)]
    places = {gpu: number // 2 for number, gpu in enumerate(gpus)} | {
        port: number // 2 for number, port in enumerate(ports)
    }
    cells = {}
    for one in (*gpus, *ports):
        row = []
        for other in (*gpus, *ports):
            if one == other:
                row.append("X")
            elif one in gpus and other in gpus:
                row.append("NV12")
            else:
                row.append("PXB" if places[one] == places[other] else "SYS")
        cells[one] = " ".join(row)
    numa_nodes = ("48-63,176-191\t3", "16-31,144-159\t1", "112-127,240-255\t7", "80-95,208-223\t5")
    return _matrix(cells, {gpu: numa_nodes[number // 2] for number, gpu in enumerate(gpus)})


DGX_A100 = _dgx_a100()

_H100_PORTS = (0, 3, 4, 5, 6, 9, 10, 11)
"""The port of each GPU among the twelve; the others are of storage."""


def _dgx_h100() -> str:
    """NVIDIA DGX H100, driver 535 and later: 12 ports by the names NIC0 to NIC11, one below the bridge of each GPU."""
    gpus, ports = [f"GPU{number}" for number in range(8)], [f"NIC{number}" for number in range(12)]
    sockets = {gpu: number // 4 for number, gpu in enumerate(gpus)} | {
        port: number // 6 for number, port in enumerate(ports)
    }
    below = {frozenset((f"GPU{gpu}", f"NIC{port}")) for gpu, port in enumerate(_H100_PORTS)}
    twins = {frozenset(("NIC1", "NIC2")), frozenset(("NIC7", "NIC8"))}
    cells = {}
    for one in (*gpus, *ports):
        row = []
        for other in (*gpus, *ports):
            pair = frozenset((one, other))
            if one == other:
                row.append("X")
            elif one in gpus and other in gpus:
                row.append("NV18")
            elif pair in below or pair in twins:
                row.append("PXB" if pair in below else "PIX")
            else:
                row.append("NODE" if sockets[one] == sockets[other] else "SYS")
        cells[one] = " ".join(row)
    near = {gpu: ("0-55,112-167\t0\t\tN/A", "56-111,168-223\t1\t\tN/A")[sockets[gpu]] for gpu in gpus}
    return _matrix(
        cells, near, "\nNIC Legend:\n\n" + "".join(f"  NIC{number}: mlx5_{number}\n" for number in range(12))
    )


DGX_H100 = _dgx_h100()

A100_PAIRS = _matrix(
    {"GPU0": "X NV12 SYS SYS", "GPU1": "NV12 X SYS SYS", "GPU2": "SYS SYS X NV12", "GPU3": "SYS SYS NV12 X"},
    {"GPU0": "0-23\t0", "GPU1": "0-23\t0", "GPU2": "24-47\t1", "GPU3": "24-47\t1"},
)
"""4 A100 PCIe with NVLink bridges between pairs, as NVIDIA's A100 PCIe product brief has them: 12 links a pair."""

_NERSC_BUSES = ("0000:03:00.0", "0000:41:00.0", "0000:81:00.0", "0000:c1:00.0")


def _nersc_a100() -> Iterator[str]:
    """A node of Perlmutter as NCCL dumps it: 4 A100, 4 NVLinks between any two, Slingshot ports and a slow bond."""
    yield '<system version="1">'
    for number, bus in enumerate(_NERSC_BUSES):
        yield f'  <cpu numaid="{3 - number}" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">'
        yield f'    <pci busid="{bus}" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">'
        yield f'      <gpu dev="{number}" sm="80" rank="{number}" gdr="1">'
        for other in _NERSC_BUSES:
            if other != bus:
                yield f'        <nvlink target="{other}" count="4" tclass="0x030200"/>'
        yield "      </gpu>"
        yield "    </pci>"
        yield f'    <nic><net name="hsn{number}" dev="{number}" speed="200000" port="1" gdr="0"/></nic>'
        if number == 0:
            yield '    <nic><net name="bond0" dev="4" speed="1000" port="1" gdr="0"/></nic>'
        yield "  </cpu>"
    yield "</system>"


NERSC_A100 = "\n".join(_nersc_a100())

_IBM_DEVICES = (("a1", "a3", "a4"), ("ab", "ad", "ae"), ("b5", "b7", "b8"), ("bf", "c1", "c2"))
_IBM_DEVICES_BEYOND = (("c9", "cb", "cc"), ("d3", "d5", "d6"), ("dd", "df", "e0"), ("e7", "e9", "ea"))


def _ibm_h100() -> Iterator[str]:
    """The H100 cluster network profile of IBM Cloud (cloud.ibm.com/docs/vpc, 2024-11-21): what its guests see.

    A virtual bridge above each GPU and its port, widths of 0 lanes, NVSwitches by their bus ids.
    """
    yield '<system version="1">'
    for numa_node, devices in enumerate((_IBM_DEVICES, _IBM_DEVICES_BEYOND)):
        yield f'  <cpu host_hash="0xa5f31daa95182da8" numaid="{numa_node}" arch="x86_64" vendor="GenuineIntel"'
        yield '   familyid="6" modelid="143">'
        for place, (bridge, port, gpu) in enumerate(devices):
            number = 4 * numa_node + place
            yield f'    <pci busid="0000:{bridge}:00.0" class="0x060400" link_speed="2.5 GT/s PCIe" link_width="1">'
            yield f'      <pci busid="0000:{port}:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="0">'
            yield f'        <nic><net name="mlx5_{7 - number}" dev="{7 - number}" speed="200000" port="1" gdr="1"/>'
            yield "        </nic></pci>"
            yield f'      <pci busid="0000:{gpu}:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="0">'
            yield f'        <gpu dev="{number}" sm="90" rank="{number}" gdr="1">'
            for switch, count in (("f3", 4), ("f4", 5), ("f5", 5), ("f6", 4)):
                yield f'          <nvlink target="0000:{switch}:00.0" count="{count}" tclass="0x068000"/>'
            yield "        </gpu>"
            yield "      </pci>"
            yield "    </pci>"
        yield "  </cpu>"
    yield "</system>"


IBM_H100 = "\n".join(_ibm_h100())

SLURM_TREE = """\
# topology.conf(5): topology/tree
SwitchName=s0 Nodes=dev[0-5]
SwitchName=s1 Nodes=dev[6-11]
SwitchName=s2 Nodes=dev[12-17]
SwitchName=s3 Switches=s[0-2]
"""
"""The example of topology.conf(5)."""

SLURM_BLOCKS = """\
# 18 nodes of a rack that NVLink joins, four racks planned together
BlockName=block1 Nodes=node[01-18]
BlockName=block2 Nodes=node[19-36]
BlockName=block3 Nodes=node[37-54]
BlockName=block4 Nodes=node[55-72]
BlockSizes=18,72
"""
"""As topology.conf(5) has topology/block, with the racks of an NVL72."""

HYPERPOD_YAML = """\
- topology: tree
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: leaf-0,leaf-1
      - switch: leaf-0
        nodes: compute-1,compute-2
      - switch: leaf-1
        nodes: compute-3,compute-4
"""
"""What SageMaker HyperPod writes for Slurm 25.11 (its developer guide, tree topology)."""

SOPERATOR_YAML = """\
---
- topology: ib-gpu
  cluster_default: false
  block:
    block_sizes:
      - 8
      - 16
    blocks:
      - block: nvl0
        nodes: h100-[0-7]
      - block: nvl1
        nodes: h200-[0-7]
- topology: eth-cpu
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: unknown
      - switch: unknown
        nodes: cpu-[0-31]
"""
"""Two topologies in one file, as Soperator (Nebius) writes them; its blocks have 4 and 16 there."""
