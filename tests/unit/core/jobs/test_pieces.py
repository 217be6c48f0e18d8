from __future__ import annotations

from autotuner.core.jobs.pieces import num_pieces
from autotuner.units import MIB


def test_a_tensor_is_cut_into_as_many_pieces_as_it_has_mebibytes_but_no_more_than_eight() -> None:
    assert [num_pieces(num_bytes) for num_bytes in (0, MIB, 2 * MIB - 1, 2 * MIB, 8 * MIB, 99 * MIB)] == [
        1,
        1,
        1,
        2,
        8,
        8,
    ]
