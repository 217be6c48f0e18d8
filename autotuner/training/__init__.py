"""Building blocks for any trainer on PyTorch. The product's own trial job uses them, too.

Each module is one building block and is imported by itself: the package imports nothing. It needs torch,
``autotuner.core`` and ``autotuner.schedules``, and no other part of the product.
"""

__all__ = [
    "batches",
    "clipping",
    "communicator",
    "lossy_exchange",
    "momentum",
    "pipelines",
    "ring_and_tree",
    "two_level",
]
