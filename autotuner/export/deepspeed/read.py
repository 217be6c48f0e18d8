"""``ds_config.json``, a script that starts DeepSpeed, or both in one text, as a layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from string import Template

from autotuner.core.choices import Recompute
from autotuner.core.errors import InvalidInput
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.deepspeed.script import Script, as_trainer_says, script_of
from autotuner.export.deepspeed.understood import Understood, understood
from autotuner.export.documents import json_document, split_document
from autotuner.export.keys import flat
from autotuner.export.target import Imported, Note, NoteKind

_TELLING = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size")
_STARTED = re.compile(r"(^|\s)(deepspeed(\.launcher\.runner)?\s|--deepspeed|--zero[_-]stage)")


def recognises(text: str) -> bool:
    """Whether it is a configuration of DeepSpeed's, or a command that starts it."""
    rest, document = split_document(text)
    return any(f'"{name}"' in document for name in _TELLING) or bool(_STARTED.search(rest))


def read(text: str, num_ranks: int | None) -> Imported:
    """The layout that a configuration says, a script says, or a script that writes its configuration.

    Raises:
        InvalidInput: It is none, or a setting makes no sense.
    """
    rest, document = split_document(text)
    script = script_of(rest, document)
    if not document and not script:
        raise InvalidInput("config", text[:60], "must be a ds_config.json, or a command that starts DeepSpeed")
    config = flat(json_document(_filled_in(document, script.variables))) if document else _unseen(script)
    result = understood(_merged(config, script), num_ranks or script.num_ranks)
    return _imported(result, script, has_config=bool(document))


def _filled_in(document: str, variables: Mapping[str, str]) -> str:
    """A document with the variables of the script that writes it."""
    return Template(document).safe_substitute(variables) if "$" in document else document


def _unseen(script: Script) -> dict[str, object]:
    """What a configuration that is made elsewhere most likely says of precision."""
    says = "bf16.enabled" in script.config or "fp16.enabled" in script.config
    return {} if says else {"bf16.enabled": True}


def _merged(config: Mapping[str, object], script: Script) -> dict[str, object]:
    """The configuration, with the script's flags for what it leaves to them."""
    return {**config, **{path: raw for path, raw in script.config.items() if config.get(path, "auto") == "auto"}}


def _imported(result: Understood, script: Script, *, has_config: bool) -> Imported:
    layout, said = as_trainer_says(script, result.layout)
    notes = [*result.notes, *said]
    if script.recomputes:
        layout = replace(layout, recompute=Recompute.FULL)
    if not has_config:
        notes += _of_what_is_unseen(script)
    if script.recomputes is None and layout.recompute == Recompute.NONE:
        detail = "no recomputation; scripts turn it on in code, and many name it gradient_checkpointing"
        notes.append(Note(kind=NoteKind.ASSUMED, setting="gradient_checkpointing", detail=detail))
    notes += script.remarks
    return Imported(
        format=ExportFormat.DEEPSPEED,
        layout=layout,
        num_ranks=result.num_ranks,
        model_name=script.model_name,
        seq_len=script.seq_len,
        global_batch_size=result.global_batch_size,
        notes=tuple(notes),
    )


def _of_what_is_unseen(script: Script) -> list[Note]:
    notes = []
    if script.config_file:
        detail = "the file is not opened: paste its contents too, or the layout lacks what they say"
        notes.append(Note(kind=NoteKind.IGNORED, setting=script.config_file, detail=detail))
    if "bf16.enabled" not in script.config and "fp16.enabled" not in script.config:
        detail = "the configuration that the script makes in code is not seen; bf16 is taken"
        notes.append(Note(kind=NoteKind.ASSUMED, setting="bf16.enabled", detail=detail))
    return notes
