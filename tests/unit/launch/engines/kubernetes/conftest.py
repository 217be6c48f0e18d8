from __future__ import annotations

from tests.unit.launch.engines.kubernetes.held import cluster, held

__all__ = ["cluster", "held"]
