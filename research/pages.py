"""Pages of docs that are made of the code and of published runs.

``python -m research.pages [recipes] [exports] [descriptions]`` writes these, or all three.

* ``docs/recipes.md``: what vendors publish, what we predict for it, and the first choice of the default space for the
  same model, cluster, workload and software, in the number formats of the published run; nobody ran it. The constants
  are the catalog's, whose fits saw some of these rows: docs/reference/accuracy.md has the
  errors of constants that did not.
* ``docs/exports.md``: for each rule of each format a layout that breaks it, found by changing one field of a few plain
  layouts, and what the rule says of it.
* ``docs/descriptions.md``, behind its last heading of the first order: tables of every field that a model or a cluster
  is described by, from the docstrings of the code.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from enum import Enum
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from autotuner.backtest.table import Sheet, read_table
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.accelerator import Accelerator
from autotuner.core.blocks import LatentAttention, LinearAttention, MixtureOfExperts
from autotuner.core.choices import (
    FP8_PRECISIONS,
    Choice,
    ContextExchange,
    Fp8Recipe,
    OptimizerKernel,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.cluster import Cluster, Tariff
from autotuner.core.codec import to_plain
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.link import Link, LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.network import Network, Port, Tier, Wiring
from autotuner.core.option import Kind
from autotuner.core.prediction import Prediction
from autotuner.core.rules.rule import Rule
from autotuner.core.space import default_space
from autotuner.core.text import field_texts
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.export.formats import FORMATS
from autotuner.export.target import Target
from autotuner.report.words import likely
from autotuner.search.ranking import PredictedLayout, best_predicted

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "docs" / "recipes.md"

TABLES = ("dgxc_benchmarking", "nemo_megatron_bridge_perf", "repo_reports_misc", "simumax_b200", "torchtitan")
"""Copies under tests/published of what vendors of hardware and software measured themselves."""

MODELS = ("llama-3", "llama-2", "gpt-3-175b", "nemotron-4-15b", "qwen3-30b", "gpt-oss", "mixtral", "grok")
"""Beginnings of the names of models that people know."""

ACCELERATORS = ("h100", "b200", "gb200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A published run: of its source, model, accelerator and number format the fastest per accelerator."""

    source: str
    job: Job
    layout: Layout
    measured_s: float
    """Of one step."""
    theirs: Prediction
    """Prediction of its layout."""
    ours: PredictedLayout | None
    """Our first choice; None where none is predicted to fit."""

    @property
    def error(self) -> float:
        """Predicted over measured throughput, less 1."""
        return self.measured_s / self.theirs.step_time.total_s - 1

    @property
    def gain(self) -> float | None:
        """What our first choice is predicted to reach over what theirs is, less 1."""
        return None if self.ours is None else self.ours.prediction.tokens_per_s / self.theirs.tokens_per_s - 1

    def per_rank(self, tokens_per_s: float) -> float:
        """Tokens per second of one accelerator, from those of the whole job."""
        return tokens_per_s / self.job.cluster.world_size


def recipes(tables: Iterable[str] = TABLES) -> Iterator[Recipe]:
    """One for each software, model, accelerator and format of a table, in the order of the tables."""
    for table in tables:
        best: dict[tuple[str, ...], tuple[Sheet, int]] = {}
        for sheet, row in _runs(table):
            key = _kind(sheet, sheet.layouts.row(row))
            if key not in best or _rate(sheet, row) > _rate(*best[key]):
                best[key] = sheet, row
        for sheet, row in best.values():
            yield _recipe(sheet, sheet.layouts.row(row), float(sheet.step_time_s[row]))


def _runs(table: str) -> Iterator[tuple[Sheet, int]]:
    """Rows that ended, of models and accelerators that are asked for."""
    for sheet in read_table(ROOT / "tests" / "published" / f"{table}.csv").sheets:
        name = sheet.job.cluster.accelerator.name
        if sheet.job.model.name.startswith(MODELS) and name.startswith(ACCELERATORS):
            for row in np.flatnonzero(~sheet.out_of_memory).tolist():
                yield sheet, row


def _kind(sheet: Sheet, layout: Layout) -> tuple[str, ...]:
    return sheet.job.stack.name, sheet.job.model.name, sheet.job.cluster.accelerator.name, _format(layout)


def _rate(sheet: Sheet, row: int) -> float:
    """Tokens per second of one accelerator."""
    return sheet.job.workload.tokens_per_step / float(sheet.step_time_s[row]) / sheet.job.cluster.world_size


def _recipe(sheet: Sheet, layout: Layout, measured_s: float) -> Recipe:
    return Recipe(
        source=sheet.source,
        job=sheet.job,
        layout=layout,
        measured_s=measured_s,
        theirs=predict_one(layout, sheet.job),
        ours=_first_choice(sheet.job, layout),
    )


def _first_choice(job: Job, theirs: Layout) -> PredictedLayout | None:
    """Ours, in the number formats of theirs."""
    space = default_space(job).with_axes(
        precision=(theirs.precision,),
        fp8_recipe=(theirs.fp8_recipe,),
        fp32_gradient_reduce=(theirs.fp32_gradient_reduce,),
    )
    return next(iter(best_predicted(job, space, limit=1).rows), None)


# ---------------------------------------------------------------- recipes_page
_COLUMNS = ("model", "cluster", "tokens, batch", "software", "published layout", "measured", "predicted", "fits")
_OURS = ("ours", "predicted", "gain", "fits")


def recipes_page(found: Iterable[Recipe]) -> str:
    """The recipes_page as Markdown, by model, accelerator and number format."""
    rows = sorted(found, key=lambda one: (one.job.model.name, one.job.cluster.accelerator.name, _format(one.layout)))
    errors, gains = [abs(one.error) for one in rows], [one.gain for one in rows if one.gain is not None]
    num_large = sum(not one.theirs.fits for one in rows)
    num_equal = sum(one.ours is not None and one.ours.layout == one.layout for one in rows)
    figures = (
        f"On {len(rows)} published layouts the median error is {100 * np.median(errors):.1f} %, the 90th percentile "
        f"{100 * np.quantile(errors, 0.9):.0f} %;\n{num_large} of them are predicted not to fit. Our first choice is "
        f"predicted {100 * np.median(gains):.0f} % faster in the median ({_signed(min(gains))} to\n"
        f"{_signed(max(gains))}), and is the published layout {num_equal} times."
    )
    return f"""# What vendors publish, and what we would have proposed

Written by `python -m research.pages recipes`. Of each software's published runs of a model on an accelerator in one
number format the fastest per accelerator; tokens per second of one accelerator. *Predicted* is for the published
layout, with its error and how likely it is predicted to fit. *Ours* is the first choice of the default space for the
same model, cluster, batch, software and number format, with what it is predicted to gain over what is predicted for
theirs; nobody ran it, and where theirs is not sure to fit it may be slower. Predictions are by the catalog's
constants, whose fits saw some of these runs: [accuracy](reference/accuracy.md) has the errors of constants that did
not.

{figures}

{_table_row(*_COLUMNS, *_OURS)}{_table_row(*["---"] * len(_COLUMNS + _OURS))}{"".join(map(_recipe_line, rows))}"""


def _table_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _recipe_line(one: Recipe) -> str:
    workload, job = one.job.workload, one.job
    measured = one.per_rank(workload.tokens_per_step / one.measured_s)
    return _table_row(
        job.model.name,
        f"{job.cluster.accelerator.name}:{job.cluster.world_size}",
        f"{workload.seq_len:,}, {workload.global_batch_size:,}",
        job.stack.name,
        f"`{one.layout}`",
        f"{measured:,.0f}",
        f"{one.per_rank(one.theirs.tokens_per_s):,.0f} ({_signed(one.error)})",
        _fit(one.theirs),
        *_ours(one),
    )


def _ours(one: Recipe) -> tuple[str, str, str, str]:
    if one.ours is None or one.gain is None:
        return "nothing fits", "-", "-", "-"
    prediction = one.ours.prediction
    error = f" ± {100 * prediction.relative_error:.0f} %" if prediction.relative_error is not None else ""
    rate = f"{one.per_rank(prediction.tokens_per_s):,.0f}{error}"
    return f"`{one.ours.layout}`", rate, _signed(one.gain), _fit(prediction)


def _fit(prediction: Prediction) -> str:
    return "-" if prediction.fit_probability is None else likely(prediction.fit_probability)


def _signed(share: float) -> str:
    return f"{100 * share:+.0f} %".replace("-", "−")


def _format(layout: Layout) -> str:
    """The number format of the products, and how fp8 is scaled."""
    is_scaled = layout.precision in FP8_PRECISIONS and layout.fp8_recipe != Fp8Recipe.TENSORWISE
    return f"{layout.precision} {layout.fp8_recipe}" if is_scaled else str(layout.precision)


EXPORTS = ROOT / "docs" / "exports.md"

_EXPORTS_HEAD = """# What each export cannot express

Written by `python -m research.pages exports` from the rules of the formats. An export names each rule that its layout
breaks, with what the trainer does instead and the nearest value that it can say; a sweep of such a trainer leaves out
every layout that breaks one. A row is a rule, with the first layout that was found to break it.

What is *left to code* breaks no rule: the configuration has no word for it, since the training code itself decides. An
export tells so, and a sweep holds each such field at one value. `autotuner import` reads what is read back.
"""

_PLAIN: tuple[dict[str, Any], ...] = (
    {},
    {"tensor_parallel_degree": 2},
    {"tensor_parallel_degree": 2, "sequence_parallel": True},
    {"data_parallel_replicate_degree": 8},
    {"data_parallel_shard_degree": 8, "shard_level": ShardLevel.OPTIMIZER},
    {"data_parallel_shard_degree": 8, "shard_level": ShardLevel.PARAMETERS},
    {"context_parallel_degree": 2},
    {"expert_parallel_degree": 2, "data_parallel_shard_degree": 8, "shard_level": ShardLevel.PARAMETERS},
    {"pipeline_parallel_degree": 2},
    {
        "pipeline_parallel_degree": 8,
        "virtual_stages_per_rank": 2,
        "pipeline_schedule": PipelineSchedule.INTERLEAVED_1F1B,
    },
    {"pipeline_parallel_degree": 2, "data_parallel_shard_degree": 4, "shard_level": ShardLevel.PARAMETERS},
    {"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2},
    {"precision": Precision.FP8},
    {"precision": Precision.FP32},
    {"recompute": Recompute.FULL},
    {"recompute": Recompute.SELECTIVE},
    {"precision": Precision.FP8_EMULATED},
    {"compiled": True},
    {"optimizer_kernel": OptimizerKernel.FOREACH},
    {"context_parallel_degree": 2, "context_exchange": ContextExchange.ALL_TO_ALL},
    {"pipeline_parallel_degree": 2, "pipeline_schedule": PipelineSchedule.ZERO_BUBBLE},
    {"shard_level": ShardLevel.PARAMETERS, "data_parallel_shard_degree": 8, "reshard_after_forward": True},
    {"data_parallel_shard_degree": 8, "shard_level": ShardLevel.GRADIENTS},
)
"""Layouts, alone and two by two, of which one field is changed."""

_COUNTS = (1, 2, 3, 1001)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A rule of a format, and a layout that breaks it."""

    rule: Rule
    job: Job
    example: Layout | None
    """None: none was found."""

    @property
    def row(self) -> str:
        """The cells of a table; empty where no layout was found."""
        if self.example is None:
            return ""
        near = self.rule.nearest(self.example, self.job)
        said = self.rule.message(self.example, self.job)
        return f"| `{self.rule.field}` | `{self.example}` | {said} | {'' if near is None else f'`{near}`'} |"


def exports_page() -> str:
    """The exports_page, a section for each format, or for several with the same rules."""
    targets = sorted(FORMATS.values(), key=lambda target: (len(target.rules), target.format))
    sections = [_section(target, targets) for target in targets if _leader(target, targets) is target]
    return "\n".join([_EXPORTS_HEAD, *sections])


def _leader(target: Target, targets: Sequence[Target]) -> Target:
    """The first format with the same rules."""
    return next(one for one in targets if one.rules == target.rules)


def _section(target: Target, targets: Sequence[Target]) -> str:
    alike = [one for one in targets if one.rules == target.rules]
    lines = [f"## {', '.join(one.format for one in alike)}", *(_facts(one) for one in alike)]
    if not target.rules:
        return "\n".join([*lines, "", "It can say every layout.", ""])
    inner = [one for one in targets if one.rules and one is not target and set(one.rules) < set(target.rules)]
    known = {rule for one in inner for rule in one.rules}
    if inner:
        lines += ["", f"What {inner[-1].format} cannot say, and:"]
    table = ["", "| field | a layout that it cannot say | what it says of it | nearest |", "| --- | --- | --- | --- |"]
    own = [limit for limit in limits(target) if limit.rule not in known]
    rows = [limit.row for limit in own if limit.example is not None]
    unseen = [f"`{limit.rule.name}`" for limit in own if limit.example is None]
    rest = ["", f"Of other models, devices and workloads: {', '.join(unseen)}."] if unseen else []
    return "\n".join([*lines, *table, *rows, *rest, ""])


def _facts(target: Target) -> str:
    line = f"* {target.format}: words of release {target.version}, {'read back' if target.read else 'written only'}"
    left = [f"`{name}`" for name in OPTIONS if name in target.elsewhere]
    return f"{line}; left to code: {', '.join(left)}" if left else line


def limits(target: Target) -> list[Limit]:
    """Each rule of a format, with a layout that breaks it."""
    jobs = tuple(_jobs())
    return [_limit(rule, jobs) for rule in target.rules]


def _limit(rule: Rule, jobs: tuple[Job, ...]) -> Limit:
    for job, layout in product(jobs, _layouts(rule.field)):
        if rule.broken(layout, job):
            return Limit(rule=rule, job=job, example=layout)
    return Limit(rule=rule, job=jobs[0], example=None)


def _layouts(field: str) -> Iterator[Layout]:
    """Plain layouts with each value of a field; a rule of the job has none, and is asked of the plain ones."""
    for plain in (*_PLAIN, *(one | other for one, other in combinations(_PLAIN, 2))):
        layout = Layout(**plain)
        for value in _values(field) if field in OPTIONS else ():
            yield replace(layout, **{field: value})
        if field not in OPTIONS:
            yield layout


def _values(field: str) -> tuple[Any, ...]:
    option = OPTIONS[field]
    if option.kind == Kind.SWITCH:
        return (not option.default, option.default)
    if option.kind == Kind.CHOICE:
        return tuple(cast("type[Choice]", type(option.default)))
    return tuple(count for count in _COUNTS if option.highest is None or count <= option.highest)


def _jobs() -> Iterator[Job]:
    """Dense and sparse models, on GPUs and on cores, on software that compiles and on one that does not."""
    for model, cluster, stack, moments in _JOBS:
        yield Job(
            model=load_model(model),
            cluster=load_cluster(cluster),
            workload=Workload(seq_len=8192, global_batch_size=1024, optimizer_state_precision=moments),
            stack=load_stack(stack),
        )


_JOBS: tuple[tuple[str, str, str, Literal["fp32", "bf16"]], ...] = (
    ("llama-3-70b", "h100:8", "torch", "fp32"),
    ("mixtral-8x7b", "h100:8", "torch", "fp32"),
    ("llama-3-70b", "h100:8", "megatron-core", "bf16"),
    ("deepseek-v3", "cpu:8", "torch", "fp32"),
)


DESCRIPTIONS = ROOT / "docs" / "descriptions.md"

_FIELDS_HEAD = "# Every field\n"

_DESCRIBED = {
    TransformerSpec: "A model",
    MixtureOfExperts: "`experts` of a model",
    LatentAttention: "`latent_attention` of a model",
    LinearAttention: "`linear_attention` of a model",
    Cluster: "A cluster",
    Accelerator: "`accelerator` of a cluster",
    Link: "`intra_node_link` and `inter_node_link` of a cluster",
    LinkHealth: "An entry of `link_health` of a cluster",
    Network: "`network` of a cluster",
    Tier: "An entry of `tiers` of a network",
    Wiring: "`wiring` of a cluster",
    Port: "An entry of `ports` of a wiring",
    Tariff: "`tariff` of a cluster",
}
"""What people write down, by the headings of their tables."""

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def descriptions_page(text: str) -> str:
    """The descriptions_page with the tables as the code has them now."""
    return text[: text.index(_FIELDS_HEAD)] + "\n".join([_FIELDS_HEAD, *_tables()]) + "\n"


def _tables() -> Iterator[str]:
    for cls, title in _DESCRIBED.items():
        yield f"## {title}\n\n| field | value | default | meaning |\n| --- | --- | --- | --- |"
        hints, meanings = get_type_hints(cls), _meanings(cls)
        for one in fields(cls):
            cells = (f"`{one.name}`", _words(hints[one.name]), _default(one), meanings.get(one.name, ""))
            yield f"| {' | '.join(cells)} |"
        yield ""


def _meanings(cls: type[Any]) -> dict[str, str]:
    """What is said of each field, on one line and of JSON."""
    texts = {name: " ".join(text.split()).replace("``", "`") for name, text in field_texts(cls).items()}
    return {name: re.sub(r"\bNone\b", "null", text) for name, text in texts.items()}


def _words(hint: Any) -> str:
    """The type as somebody who writes JSON would say it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if one is types.NoneType else _words(one) for one in args)
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in args)
    if origin is tuple:
        return f"list of {_words(args[0])}"
    if isinstance(hint, type) and issubclass(hint, Choice):
        return ", ".join(f"`{word}`" for word in hint.labels())
    return _WORDS.get(hint, "object")


def _default(one: Field[Any]) -> str:
    if one.default is MISSING:
        return "-"
    value = one.default.value if isinstance(one.default, Enum) else to_plain(one.default)
    match value:
        case None | [] | "":
            return "none"
        case bool():
            return str(value).lower()
        case list():
            return ", ".join(f"`{item}`" for item in value)
        case str():
            return f"`{value}`"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def main() -> None:
    """Write the pages that are named, or all."""
    pages: dict[str, tuple[Path, Callable[[], str]]] = {
        "recipes": (RECIPES, lambda: recipes_page(recipes())),
        "exports": (EXPORTS, exports_page),
        "descriptions": (DESCRIPTIONS, lambda: descriptions_page(DESCRIPTIONS.read_text(encoding="utf-8"))),
    }
    for name in sys.argv[1:] or pages:
        page, text = pages[name]
        page.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
