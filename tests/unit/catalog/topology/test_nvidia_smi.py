"""The matrix of ``nvidia-smi topo -m``."""

from __future__ import annotations

import pytest

from autotuner.catalog.topology.nvidia_smi import read_nvidia_smi
from autotuner.core.errors import InvalidInput
from autotuner.core.network import PathKind, Wiring
from tests.unit.catalog.topology.published import A100_PAIRS, DGX_A100, DGX_H100


def _wiring(text: str) -> Wiring:
    wiring = read_nvidia_smi(text).wiring
    assert wiring is not None
    return wiring


def test_a_dgx_a100_has_a_pair_of_gpus_and_of_ports_below_each_pair_of_switches() -> None:
    wiring = _wiring(DGX_A100)
    assert wiring.nvlink_groups == (tuple(range(8)),)
    assert wiring.switches == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert [(port.name, port.nearest) for port in wiring.ports[:3]] == [
        ("mlx5_0", (0, 1)),
        ("mlx5_1", (0, 1)),
        ("mlx5_2", (2, 3)),
    ]
    assert len(wiring.ports) == 8  # the ports of storage are near to none


def test_a_dgx_has_its_ports_near_its_gpus_and_heads_that_a_terminal_underlines_are_read() -> None:
    wiring = _wiring(DGX_H100)
    assert wiring.sockets == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert [port.name for port in wiring.ports] == [f"mlx5_{number}" for number in (0, 3, 4, 5, 6, 9, 10, 11)]
    assert [port.nearest for port in wiring.ports] == [(number,) for number in range(8)]
    assert _wiring(DGX_H100.replace("\tGPU0", "\t\x1b[4mGPU0", 1).replace("NUMA Aff", "\x1b[0mNUMA Aff")).sockets


def test_nvlinks_that_are_few_are_a_mesh_bridges_or_pass_on_what_others_send() -> None:
    cells = {f"GPU{one}": ["X" if one == other else "NV4" for other in range(4)] for one in range(4)}
    text = "\t" + "\t".join(cells) + "\n" + "\n".join(f"{gpu}\t" + "\t".join(row) for gpu, row in cells.items())
    assert read_nvidia_smi(text).mesh_peers == 3
    assert read_nvidia_smi(DGX_A100).mesh_peers == 0
    wiring = _wiring(A100_PAIRS)
    assert wiring.nvlink_groups == wiring.sockets == ((0, 1), (2, 3))
    assert wiring.limiting_path(range(4)) is PathKind.SOCKETS
    text = "GPU0 GPU1 GPU2\nGPU0 X NV1 PHB\nGPU1 NV1 X NV1\nGPU2 PHB NV1 X"
    topology = read_nvidia_smi(text)
    assert topology.wiring is not None
    assert topology.wiring.nvlink_groups == ((0, 1, 2),)
    assert "not each GPU with each" in topology.notes[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("GPU0 GPU1\nGPU0 X NVL\nGPU1 NVL X", "line 2 = 'NVL': must be one of X, PIX"),
        ("GPU0 GPU1\nGPU0 X PIX\nGPU1 PXB X", "line 2 = 'PIX': must be what GPU1 has for GPU0; .* PXB"),
        ("GPU0 GPU1\nGPU0 X PIX", "line 1 = 'GPU1': has no line of its own"),
        ("GPU0 GPU1\nGPU0 X\nGPU1 PIX X", "line 2 = 'GPU0 X': must have 2 cells"),
        ("GPU0 GPU2\nGPU0 X PIX\nGPU2 PIX X", "must be numbered from 0 to 1"),
    ],
)
def test_what_is_not_whole_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_nvidia_smi(text)
