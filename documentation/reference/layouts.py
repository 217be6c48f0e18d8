"""The page of a layout's options, made from their declarations in ``autotuner.core.layout``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.choices import ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, SHARD_WORDS, Layout
from autotuner.core.option import Kind, OptionSpec, Topic
from autotuner.core.space import default_space
from autotuner.core.text import field_texts
from autotuner.core.workload import Workload
from documentation.reference.markdown import fence, head, prose, table, words

_INTRODUCTION = """\
`--layout` takes the words of the options in any order, each at most once. An option that you leave out keeps its
default. No two layouts have the same words, so you can copy what a table prints. `--layout` also takes the fields as
JSON. `--space` names the values of fields:
"""
_TABLES = """\
`N` stands for a number. *Tried* has the values that a prediction tries if you name none. Some options depend on the
job: for them the table has the values of two jobs, {jobs}. A layout is *not numerically equivalent* to the others if it
trains another function.
"""

_EXAMPLE = """\
autotuner predict --model llama-3-8b --cluster h100:8 \\
    --global-batch-size 64 --seq-len 8k --layout "fsdp8 mb2 recompute-full flash bf16"
autotuner predict --model llama-3-8b --cluster h100:8 \\
    --global-batch-size 64 --seq-len 8k --space '{"precision": ["bf16", "fp8"]}'
"""

_TOPICS: Mapping[Topic, str] = {
    Topic.DEGREES: "Degrees of parallelism",
    Topic.PIPELINE: "Pipeline",
    Topic.BATCH: "Batch",
    Topic.TENSOR: "Tensor parallelism",
    Topic.LOSS: "Loss",
    Topic.CONTEXT: "Context parallelism",
    Topic.DATA: "Data parallelism and collectives",
    Topic.MEMORY: "Memory",
    Topic.IMPLEMENTATION: "Implementation",
    Topic.ATTENTION: "Attention",
    Topic.PRECISION: "Precision",
}

_JOBS = {"`h100:16`": ("llama-3-8b", "h100:16", "torch"), "`cpu:8`": ("llama-demo", "cpu:8", "torch")}
"""Jobs whose default spaces are shown."""


def layouts_page() -> str:
    """Return the Markdown page of layout options, grouped by topic."""
    spaces = {name: default_space(_job(*job)) for name, job in _JOBS.items()}
    parts = [
        head("Layout options", "Every option of a layout, with its words, its default and the values that are tried."),
        _INTRODUCTION,
        fence(_EXAMPLE, "sh"),
        _TABLES.format(jobs=" and ".join(_JOBS)),
    ]
    for topic, title in _TOPICS.items():
        options = [one for one in OPTIONS.values() if one.topic == topic]
        rows = [(f"`{one.name}`", _words(one), _default(one), _tried(one, spaces), _about(one)) for one in options]
        parts.append(f"## {title}\n\n{table(('field', 'words', 'default', 'tried', 'meaning'), rows)}")
    return "\n".join(parts)


def _job(model: str, cluster: str, stack: str) -> Job:
    return Job(
        model=load_model(model),
        cluster=load_cluster(cluster),
        workload=Workload(seq_len=8192, global_batch_size=64),
        stack=load_stack(stack),
    )


def _words(one: OptionSpec) -> str:
    if one.name == "data_parallel_shard_degree":
        return ", ".join(
            f"`{word}N` ({level.label})" for level, word in SHARD_WORDS.items() if level != ShardLevel.NONE
        )
    if not one.word:
        return f"the word of `{one.qualifies}` says it"
    if one.kind is Kind.CHOICE:
        return words(one.word.format(value) for value in one.values)
    if one.kind is Kind.SWITCH:
        return f"`{one.word}` (off)" if one.default else f"`{one.word}`"
    return f"`{one.word.format('N')}`"


def _default(one: OptionSpec) -> str:
    return f"`{one.in_words(one.default).replace(' ', '_')}`" if one.kind is Kind.CHOICE else one.in_words(one.default)


def _tried(one: OptionSpec, spaces: Mapping[str, object]) -> str:
    if one.name == "data_parallel_replicate_degree":
        return "the ranks that the other degrees leave"
    by_job = {name: _values(one, getattr(space, one.name)) for name, space in spaces.items()}
    if len(set(by_job.values())) == 1:
        return next(iter(by_job.values()))
    return "; ".join(f"{name}: {values}" for name, values in by_job.items())


def _values(one: OptionSpec, values: tuple[int, ...] | None) -> str:
    return "every legal value" if values is None else ", ".join(one.in_words(value) for value in values)


def _about(one: OptionSpec) -> str:
    return ". ".join(part.rstrip(".") for part in _parts(one)) + "."


def _parts(one: OptionSpec) -> Iterator[str]:
    label = one.name.replace("_", " ") if one.kind is Kind.DEGREE else one.label
    yield label[:1].upper() + label[1:] + (f", in {one.unit}" if one.unit else "")
    if text := field_texts(Layout).get(one.name):
        yield prose(text)
    if one.kind is Kind.CHOICE and not one.word:
        yield f"Values: {words(value.label for value in type(one.default))}"  # type: ignore[attr-defined]  # a Choice
    if one.highest is not None:
        yield f"From {one.lowest} to {one.highest}"
    if one.qualifies and one.word:
        yield f"A detail of `{one.qualifies}`"
    if one.not_equivalent:
        yield f"Not numerically equivalent: {words(one.to_plain(one.value_of(value)) for value in one.not_equivalent)}"
    if one.only_in:
        yield f"Only in the stacks {words(one.only_in)}"
    for burden in one.burdens:
        of = f" ({words(one.to_plain(one.value_of(value)) for value in burden.values)})" if burden.values else ""
        yield f"Adds complexity{of}: {burden.reason}"
