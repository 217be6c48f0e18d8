"""Time of a matrix product: tiles in waves over the multiprocessors, or the memory traffic if that takes longer.

A device computes a product tile by tile, one tile per multiprocessor at a time. Shapes lose time to tiles that reach
over the edge, to a last wave that leaves multiprocessors idle, to filling each tile's pipeline, and to rows that do not
start where vector loads can. Libraries try several tiles, and cut the inner dimension where there are too few of them;
the law takes the best.

Constants and their errors: catalog/kernels.toml, made by bench/fit_gemm.py, checked by tests/published/test_gemm.py.
"""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np

from autotuner.core.columns import Floats, Integers
from autotuner.core.kernels import GemmLaw

_PARTIAL_SUM_BYTES = 4  # of fp32, which products accumulate in
_VECTOR_BYTES = 16  # what one load instruction of a thread can fetch, if its address is a multiple
_HALF_VECTOR_BYTES = 4  # the least that an asynchronous copy to shared memory fetches (CUDA's cp.async: 4, 8 or 16)

Sizes = Floats | Integers | float


def gemm_s(m: Sizes, n: Sizes, k: Sizes, law: GemmLaw, *, count: Sizes = 1) -> Floats:
    """Time of ``count`` independent products (m, k) x (k, n), launched as one batched kernel.

    Clocks are those of a short benchmark on an idle device; what a training step sustains is the caller's factor. The
    rows that must be aligned are those of length ``k`` and ``n``.

    Returns:
        Seconds, broadcast over the shapes.
    """
    m, n, k, count = (np.asarray(size, dtype=np.float64) for size in (m, n, k, count))
    ways = (_tiled_s(m, n, k, count, law, tile, split) for tile, split in product(law.tiles, law.splits))
    computed_s = reduce(np.minimum, ways) / _aligned_share(n, k, law)
    moved_bytes = law.operand_bytes * (m * k + k * n) + law.product_bytes * m * n
    return law.latency_s + np.maximum(computed_s, count * moved_bytes / law.memory_bandwidth_bytes_per_s)


def whole_vectors(size: Floats, law: GemmLaw) -> Floats:
    """The nearest size whose rows are aligned, of one that is a mean of many; at least one vector."""
    vector = _VECTOR_BYTES / law.operand_bytes
    return np.maximum(np.rint(size / vector), 1.0) * vector if min(law.unaligned_shares) < 1 else size


def _tiled_s(m: Floats, n: Floats, k: Floats, count: Floats, law: GemmLaw, tile: tuple[int, int], split: int) -> Floats:
    """With one tile shape, the inner dimension cut into ``split`` parts whose sums are added up through memory."""
    rows, columns = tile
    exact_waves = count * np.ceil(m / rows) * np.ceil(n / columns) * split / law.num_multiprocessors
    waves = np.maximum(exact_waves + law.wave_loss * (np.ceil(exact_waves) - exact_waves), 1.0)
    flop = 2 * rows * columns * (k / split + law.prologue) * law.num_multiprocessors
    seconds: Floats = waves * flop / (law.peak_flop_per_s * law.peak_share * law.rate_share(tile))
    if split > 1:
        summed_bytes = _PARTIAL_SUM_BYTES * (split + 1) * count * m * n
        seconds = seconds + summed_bytes / law.memory_bandwidth_bytes_per_s
    return seconds


def _aligned_share(n: Floats, k: Floats, law: GemmLaw) -> Floats:
    """Share of the rate that is left where rows of ``n`` or ``k`` elements start between vectors."""
    half, less = law.unaligned_shares
    whole_vectors = _divides(_VECTOR_BYTES, n, k, law)
    half_vectors = _divides(_HALF_VECTOR_BYTES, n, k, law)
    return np.where(whole_vectors, 1.0, np.where(half_vectors, half, less))


def _divides(num_bytes: int, n: Floats, k: Floats, law: GemmLaw) -> Floats:
    return np.asarray((n * law.operand_bytes % num_bytes == 0) & (k * law.operand_bytes % num_bytes == 0))
