"""The tables. Whole values are documents of the wire codec; what queries filter, sort, count and list has its column.

Columns that came after the first revision have a server's default: SQLite adds none without one to a table that others
refer to. No row keeps it, since the store and the revision write every column.
"""

from autotuner.store.tables.access import audit, sessions, tokens
from autotuner.store.tables.columns import metadata
from autotuner.store.tables.names import clusters, models, profiles
from autotuner.store.tables.runs import runs
from autotuner.store.tables.studies import optimizer_trials
from autotuner.store.tables.sweeps import events, failures, gates, measurements, steps, sweeps, trials, workers
from autotuner.store.tables.upkeep import (
    announcements,
    baselines,
    measured_gates,
    retunes,
    webhooks,
)

__all__ = [
    "announcements",
    "audit",
    "baselines",
    "clusters",
    "events",
    "failures",
    "gates",
    "measured_gates",
    "measurements",
    "metadata",
    "models",
    "optimizer_trials",
    "profiles",
    "retunes",
    "runs",
    "sessions",
    "steps",
    "sweeps",
    "tokens",
    "trials",
    "webhooks",
    "workers",
]
