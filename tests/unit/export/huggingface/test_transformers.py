"""Arguments of the ``transformers`` Trainer, written and read back."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.huggingface.targets import TRANSFORMERS
from autotuner.export.registry import export, read
from tests.builders import big_job
from tests.unit.export.sayable import in_its_words, sayable


@given(layout=sayable(TRANSFORMERS, big_job()))
def test_what_the_trainer_can_be_told_is_read_back_as_it_was(layout: Layout) -> None:
    exported = export(big_job(), layout, "transformers")
    assert exported.unsaid == ()
    imported = read(exported.text, "transformers", layout.world_size)
    assert in_its_words(TRANSFORMERS, imported.layout) == in_its_words(TRANSFORMERS, layout)
    assert imported.global_batch_size == 1024


_NAMES = st.sampled_from(
    [
        *("per_device_train_batch_size", "bf16", "fp16", "fsdp", "fsdp_config", "deepspeed", "optim", "torch_compile"),
        *(
            "gradient_checkpointing",
            "gradient_checkpointing_kwargs",
            "ddp_bucket_cap_mb",
            "gradient_accumulation_steps",
        ),
    ]
)
_VALUES = st.sampled_from(
    ["1", "0", "true", "auto", "full_shard", "{", '{"version": 2}', "-3", "1e9", "adafactor", "ds.json"]
)


@given(flags=st.lists(st.tuples(_NAMES, _VALUES), max_size=5), rest=st.text(max_size=10))
@settings(max_examples=200)
def test_any_command_line_is_read_or_refused(flags: list[tuple[str, str]], rest: str) -> None:
    try:
        read(" ".join(f"--{name} '{value}'" for name, value in flags) + rest, "transformers")
    except InvalidInput:
        return


@given(values=st.dictionaries(_NAMES, _VALUES | st.booleans() | st.none() | st.dictionaries(_NAMES, _VALUES)))
@settings(max_examples=200)
def test_any_object_is_read_or_refused(values: dict[str, object]) -> None:
    try:
        read(json.dumps({"output_dir": "x", **values}), "transformers", 8)
    except InvalidInput:
        return
