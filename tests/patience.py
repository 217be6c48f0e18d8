"""How long a test waits for an event that will come, unless something hangs."""

from __future__ import annotations

__all__ = ["PATIENCE_S"]

PATIENCE_S = 300.0
"""A machine whose cores four other processes want each takes a tenth of it for the slowest wait of the suite."""
