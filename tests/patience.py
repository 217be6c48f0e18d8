"""How long a test waits for an event that will come, unless something hangs."""

from __future__ import annotations

PATIENCE_S = 300.0
"""A machine whose cores four other processes want each takes a tenth of it for the slowest wait of the suite."""

COMPILING_PATIENCE_S = 2 * PATIENCE_S
"""The same where every rank compiles, half a minute of a core each: four of these ranks, as many of the test beside
them and a dozen other processes need five minutes on two cores. It ends before the limit of pytest, which would not
tell where the ranks stood."""
