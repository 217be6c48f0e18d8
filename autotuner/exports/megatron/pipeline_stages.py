"""Megatron's arguments for pipeline stages: the layers of each stage, and the schedule.

Names: megatron-core 0.16.1, transformer/transformer_config.py. The split of layers: transformer/transformer_block.py,
get_num_layers_to_build; the letters of a pipeline layout: transformer/pipeline_parallel_layer_layout.py. Megatron-LM
runs 1F1B, or interleaved 1F1B if a rank has several stages (pipeline_parallel/schedules.py).
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

from autotuner.core.choices import PipelineSchedule, RankOrder
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import stage_sizes
from autotuner.exports.shared.keys import Reading, Written

_MOST_STAGES = 4096
_MOST_LAYERS = 10_000
"""Maximum number of layers that the letters of a pipeline layout may describe: ``t*999999999`` would fill the
memory."""

_ACCOUNTS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def write_pipeline(job: Job, layout: Layout) -> Written:
    """Return Megatron's settings for the pipeline: virtual stages, fewer layers on the end stages, and the rank order.

    The result is empty for a layout with one pipeline rank.
    """
    if layout.pipeline_parallel_degree == 1:
        return {}
    outermost = layout.rank_order == RankOrder.REPLICAS_OUTERMOST and layout.data_parallel_shard_degree == 1
    return _stages(job.model.num_layers, layout) | ({"use_tp_pp_dp_mapping": True} if outermost else {})


def _stages(num_layers: int, layout: Layout) -> Written:
    virtual, first, last = (
        layout.virtual_stages_per_rank,
        layout.first_stage_less_layers,
        layout.last_stage_less_layers,
    )
    sizes = stage_sizes(num_layers, layout.num_stages, first, last)
    if virtual == 1 and len(set(sizes)) == 1:
        return {}
    # Megatron splits evenly, counting the layers that the end stages have fewer
    if (num_layers + first + last) % layout.num_stages or (max(first, last) > 1 and virtual > 1):
        return {"pipeline_model_parallel_layout": _letters(sizes)}
    if max(first, last) > 1:
        return {"decoder_first_pipeline_num_layers": sizes[0], "decoder_last_pipeline_num_layers": sizes[-1]}
    written: Written = {"num_virtual_stages_per_pipeline_rank": virtual} if virtual > 1 else {}
    return written | {name: True for name, less in zip(_ACCOUNTS, (first, last), strict=True) if less}


def _letters(sizes: tuple[int, ...]) -> str:
    """Return the stages in Megatron's letters: ``Et*7|t*9|t*7L``."""
    return f"E{'|'.join(f't*{size}' if size > 1 else 't' * size for size in sizes)}L"


def read_pipeline(reading: Reading, layout: Layout, num_layers: int | None) -> Layout:
    """Return the layout with the pipeline stages that Megatron's settings describe. The order of ranks is not read.

    Args:
        reading: Settings by the names of Megatron's argument namespace.
        layout: The layout as read so far, which has the number of pipeline ranks.
        num_layers: The number of layers of the model; None: unknown.

    Raises:
        InvalidInput: The layers cannot be split as the settings say, or Megatron's pipeline layout string has an
            unknown letter.
    """
    num_ranks = layout.pipeline_parallel_degree
    if num_ranks == 1:
        return layout
    letters = reading.settings.text("pipeline_model_parallel_layout")
    if letters and letters.lower() != "none":
        virtual, first, last = _of_letters(reading, letters, num_layers, num_ranks)
    else:
        first, last = _given_away(reading, num_layers, num_ranks)
        virtual = _virtual_stages(reading, num_layers, num_ranks)
    return replace(
        layout,
        virtual_stages_per_rank=virtual,
        pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B if virtual > 1 else PipelineSchedule.ONE_F_ONE_B,
        first_stage_less_layers=first,
        last_stage_less_layers=last,
    )


def _virtual_stages(reading: Reading, num_layers: int | None, num_ranks: int) -> int:
    stages = reading.integer("num_virtual_stages_per_pipeline_rank", 0)
    stages = stages or reading.integer("virtual_pipeline_model_parallel_size", 0)
    layers = reading.integer("num_layers_per_virtual_pipeline_stage", 0)
    if stages or not layers:
        return stages or 1
    if num_layers is None:
        rule = "needs the setting num_layers too, because the number of stages is computed from it"
        raise InvalidInput("num_layers_per_virtual_pipeline_stage", layers, rule)
    counted = num_layers + sum(reading.on(name) for name in _ACCOUNTS)
    if counted % (num_ranks * layers):
        rule = (
            f"must be a number of layers that splits {counted} layers into equal stages on {num_ranks} pipeline "
            f"ranks: this value times {num_ranks} must divide {counted}"
        )
        raise InvalidInput("num_layers_per_virtual_pipeline_stage", layers, rule)
    return counted // num_ranks // layers


def _given_away(reading: Reading, num_layers: int | None, num_ranks: int) -> tuple[int, int]:
    """Return the numbers of layers by which the first and the last stage have fewer than the others."""
    first, last = (reading.settings.integer(f"decoder_{end}_pipeline_num_layers") for end in ("first", "last"))
    if first is None and last is None:
        return int(reading.on(_ACCOUNTS[0])), int(reading.on(_ACCOUNTS[1]))
    name = f"decoder_{'last' if first is None else 'first'}_pipeline_num_layers"
    given = last if first is None else first
    if num_layers is None:
        raise InvalidInput(
            name, given, "needs the setting num_layers too, because the layers of the other stages are computed from it"
        )
    between = num_ranks - (first is not None) - (last is not None)
    rest = num_layers - (first or 0) - (last or 0)
    if rest < 0 or (between and rest % between) or (not between and rest):
        rule = f"leaves {rest} of {num_layers} layers for {between} other stages, which do not split evenly"
        raise InvalidInput(name, given, rule)
    share = rest // between if between else max(first or 0, last or 0)
    return _less(reading, share, first), _less(reading, share, last)


def _less(reading: Reading, share: int, end: int | None) -> int:
    if end is not None and end > share:
        reading.changed(
            "decoder_first_pipeline_num_layers",
            f"an end stage of {end} layers is read as one of {share} layers, like the stages between",
        )
    return max(0, share - end) if end is not None else 0


# ---------------------------------------------------------------- letters
def _of_letters(reading: Reading, letters: str, num_layers: int | None, num_ranks: int) -> tuple[int, int, int]:
    """Return the virtual stages per rank, and the layers by which the first and the last stage have fewer."""
    sizes = _sizes(letters)
    if len(sizes) % num_ranks or (num_layers is not None and sum(sizes) != num_layers):
        rule = (
            f"has {len(sizes)} stages and {sum(sizes)} layers; the number of stages must be a multiple of the "
            f"{num_ranks} pipeline ranks, and the layers must be the {num_layers} layers of the model"
        )
        raise InvalidInput("pipeline_model_parallel_layout", letters, rule)
    share = max(sizes)
    candidates = product(*(range(max(0, share - end - 1), share - end + 2) for end in (sizes[0], sizes[-1])))
    for first, last in sorted(candidates, key=sum):
        if stage_sizes(sum(sizes), len(sizes), first, last) == sizes:
            break
    else:
        first, last = share - sizes[0], share - sizes[-1]
        reading.changed("pipeline_model_parallel_layout", "stages between the ends are read as equal")
    return len(sizes) // num_ranks, first, last


def _sizes(letters: str) -> tuple[int, ...]:
    """Return the number of layers of each stage that the letters describe."""
    plain = letters.strip("'\"").replace(",", "").replace(" ", "")
    for pattern in (r"\(([^()]*)\)\*(\d{1,4})(?!\d)", r"([ELtm|])\*(\d{1,4})(?!\d)"):
        plain = re.sub(pattern, lambda found: _repeated(letters, found[1], int(found[2])), plain)
    if re.fullmatch(r"[ELtm|]+", plain) is None or len(plain) > _MOST_LAYERS or plain.count("|") >= _MOST_STAGES:
        raise InvalidInput(
            "pipeline_model_parallel_layout",
            letters,
            "must list the layers of each stage, with | between two stages: E is the embedding, t a transformer "
            "layer, m a layer of multi-token prediction, L the loss, and t*7 means 7 transformer layers; for example "
            "Et*7|t*9|t*7L",
        )
    return tuple(stage.count("t") for stage in plain.split("|"))


def _repeated(letters: str, part: str, times: int) -> str:
    if len(part) * times > _MOST_LAYERS:
        raise InvalidInput("pipeline_model_parallel_layout", letters, f"must have at most {_MOST_LAYERS} layers")
    return part * times
