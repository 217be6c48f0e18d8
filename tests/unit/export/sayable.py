"""Layouts that a target can say, for round trips."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from autotuner.core.choices import ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.rule import Rule
from autotuner.export.target import Target
from tests.properties.strategies import layouts

_OF_THE_CLUSTER = {"world-size", "tensor-group-inside-node"}
_ROUNDS = 30
_SPLITS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"data_parallel_shard_degree": 1, "shard_level": ShardLevel.NONE, "context_parallel_degree": 1},
        {"data_parallel_replicate_degree": 1, "shard_level": ShardLevel.OPTIMIZER, "pipeline_parallel_degree": 1},
        {"data_parallel_replicate_degree": 1, "shard_level": ShardLevel.OPTIMIZER, "pipeline_parallel_degree": 2},
        {"data_parallel_replicate_degree": 1, "shard_level": ShardLevel.GRADIENTS, "pipeline_parallel_degree": 1},
        {"data_parallel_replicate_degree": 1, "shard_level": ShardLevel.PARAMETERS, "pipeline_parallel_degree": 1},
        {"shard_level": ShardLevel.PARAMETERS, "pipeline_parallel_degree": 1, "tensor_parallel_degree": 1},
        {},
    ]
)
"""Ways to split that mending alone seldom comes to."""

_COLLECTIVES = ("collective_algorithm", "collective_protocol", "collective_channels", "pxn", "queue_pairs")
"""Variables of the environment say them, not the configuration."""


@st.composite
def sayable(draw: st.DrawFn, target: Target, job: Job) -> Layout:
    """A layout that keeps a target's rules and those of any layout, whatever the number of ranks."""
    layout = _plain(draw(layouts), (*target.elsewhere, *_COLLECTIVES))
    layout = replace(layout, **draw(_SPLITS))
    rules = tuple(rule for rule in (*RULES, *target.rules) if rule.name not in _OF_THE_CLUSTER)
    return _mended(layout, job, rules, draw(st.randoms(use_true_random=False)))


def in_its_words(target: Target, layout: Layout) -> Layout:
    """The layout without what a target leaves to code or to the environment."""
    return _plain(layout, (*target.elsewhere, *_COLLECTIVES))


def _plain(layout: Layout, fields: Iterable[str]) -> Layout:
    defaults = {name: OPTIONS[name].default for name in fields}
    return replace(layout, **defaults)  # type: ignore[arg-type]  # each field has its own type


def _mended(layout: Layout, job: Job, rules: tuple[Rule, ...], random: Random) -> Layout:
    """The layout with the nearest value of each rule that it breaks."""
    for _ in range(_ROUNDS):
        broken = reasons(layout, job, rules)
        if not broken:
            return layout
        reason = random.choice(broken)
        if reason.is_of_job:
            break
        near = OPTIONS[reason.field].default if reason.nearest is None else reason.nearest
        value = OPTIONS[reason.field].from_plain(near)
        layout = replace(layout, **{reason.field: value})  # type: ignore[arg-type]  # each field has its own type
    return reject()
