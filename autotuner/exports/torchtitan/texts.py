"""Reads texts that contain a configuration of torchtitan.

For 0.2: a job file in TOML, flags, both, or the configuration that torchtitan prints as JSON. For 0.3: a Python module,
flags, or both.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS
from autotuner.core.value import require_one_of
from autotuner.exports.shared.command import Flags, launched
from autotuner.exports.shared.keys import Key, Reading, flat
from autotuner.exports.shared.target import Note, NoteKind, Notes
from autotuner.exports.shared.texts import UNKNOWN, Made, Module, first_line, read_module, split_commands
from autotuner.exports.torchtitan.releases import preset

_SAYS_NOTHING = "has no effect on the layout"

_OTHER_SECTIONS = frozenset(
    {
        *(
            "job",
            "profiling",
            "profiler",
            "metrics",
            "model",
            "optimizer",
            "lr_scheduler",
            "checkpoint",
            "comm",
            "debug",
        ),
        *("memory_estimation", "fault_tolerance", "experimental", "validation", "dataloader", "tokenizer", "loss"),
        *("hf_assets_path", "dump_folder", "activation_checkpoint", "compile", "quantize", "model_spec", "float8"),
    }
)
"""Sections of torchtitan 0.2.2 and 0.3.0 that do not describe a layout. They get no notes."""

_OTHER_SETTINGS = re.compile(
    r"training\.(dataset(_path)?|max_norm|steps|dtype|gc_.*|dataloader.*|seed|deterministic|debug_.*|warmup_steps)"
    r"|activation_checkpoint\.(early_stop|per_op_sac_.*|memory_budget|visualize_.*|preserve_rng_state|determinism_check|debug)"
    r"|compile\.backend|quantize\..*"
)
"""Settings without a field in a layout, in sections that are read (torchtitan 0.2.2, config/job_config.py). They get no
notes."""


def _section(name: str) -> str:
    return name.partition(".")[0]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(slots=True, kw_only=True, eq=False)
class Settings(Reading):
    """The settings of a torchtitan configuration by dotted name, with notes on how the import treated each.

    A setting that the import never looks up does not describe a layout.
    """

    is_partial: bool = False
    """True if the settings override a configuration that was not given with them."""

    def add(self, kind: NoteKind, setting: str, detail: str) -> None:
        """Add a note on how a setting was treated. The note also contains the setting's value."""
        said = f"{setting} = {_shown(self.settings.values[setting])}" if setting in self.settings.values else setting
        super(Settings, self).add(kind, said, detail)

    def assume(self, name: str, default: object, detail: str = "") -> None:
        """Add a note that torchtitan's default was assumed for a setting, unless the configuration has the setting."""
        if name not in self.settings.values:
            self.assumed(name, detail or f"torchtitan uses {_shown(default)} if no value is given")

    def of(self, key: Key) -> object:
        """Return the value of the setting that a key describes, or the key's default.

        Raises:
            InvalidInput: The value has another type than the default.
        """
        if isinstance(key.default, bool):
            return self.on(key.path, key.default)
        if isinstance(key.default, int):
            return self.integer(key.path, key.default, least=OPTIONS[key.field].lowest)
        return self.text(key.path, str(key.default))

    def text(self, name: str, default: str) -> str:
        """Return a setting that is a text, in its original spelling; ``default`` if the setting is missing."""
        value = self.settings.text(name)
        return default if value is None else value

    def choice(self, name: str, default: str, values: Collection[str], *, tells: bool = False) -> str:
        """Return a setting whose value must be one of several words; raise an error for any other word.

        Args:
            name: The setting's name.
            default: The word to return if the setting is missing.
            values: The legal words.
            tells: True: add a note if the setting is missing.

        Raises:
            InvalidInput: The word is not legal.
        """
        if tells:
            self.assume(name, default)
        word = self.text(name, default)
        require_one_of(name, word, values)
        return word

    def ignore(self, name: str, detail: str) -> None:
        """Add a note that a setting was ignored, if the configuration has the setting."""
        if name in self.settings:
            self.ignored(name, detail)

    def leave(self, sections: Iterable[str], known: Iterable[str]) -> None:
        """Add notes on all settings that the import has not looked up.

        Args:
            sections: Sections that describe the layout. Each setting in these sections gets its own note. All known
                sections on other topics share one note, and each unknown section gets one note.
            known: Names of known settings. The note on a misspelled setting suggests the nearest of them.
        """
        values, asked = self.settings.values, self.settings.asked
        rest = [name for name in values if name not in asked]
        unread = (
            {_section(name) for name in rest} - {_section(name) for name in values if name in asked} - set(sections)
        )
        if others := sorted(unread & _OTHER_SECTIONS):
            super(Settings, self).add(NoteKind.IGNORED, ", ".join(others), _SAYS_NOTHING)
        for section in sorted(unread - _OTHER_SECTIONS):
            super(Settings, self).add(NoteKind.UNKNOWN, section, "is not a known section of torchtitan")
        for name in rest:
            if _section(name) in sections and _OTHER_SETTINGS.fullmatch(name):
                self.ignored(name, _SAYS_NOTHING)
            elif _section(name) in sections:
                near = get_close_matches(name, known, 1, 0.85)
                self.unknown(name, "is not a known setting" + (f"; did you mean {near[0]}?" if near else ""))


_SECTIONS = "parallelism|training|activation_checkpoint|compile"
_RENAMED = {
    "training.batch_size": "training.local_batch_size",
    "training.compile": "compile.enable",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
    "experimental.context_parallel_rotate_method": "parallelism.context_parallel_rotate_method",
    "experimental.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "float8.enable_fsdp_float8_all_gather": "quantize.linear.float8.enable_fsdp_float8_all_gather",
    "float8.filter_fqns": "quantize.linear.float8.filter_fqns",
    "float8.precompute_float8_dynamic_scale_for_fsdp": (
        "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"
    ),
    "float8.recipe_name": "quantize.linear.float8.recipe_name",
    "mx.recipe_name": "quantize.linear.mx.recipe_name",
}
"""Settings of earlier releases (0.0.2 and 0.1.0, ``torchtitan/config_manager.py``), with their present names."""

_TABLE = re.compile(r"^[ \t]*\[[A-Za-z_][\w.]*\][ \t\r]*(#.*)?$", re.MULTILINE)
_OWN_TABLE = re.compile(rf"^[ \t]*\[({_SECTIONS})\][ \t\r]*(#.*)?$", re.MULTILINE)
_OWN_FLAG = re.compile(rf"--({_SECTIONS})\.\w")
_FLAG = re.compile(r"(?:^|\s)--[A-Za-z]")
_SUBCOMMAND = re.compile(r"[a-z]+[-_][a-z]+:[a-z]")
_PRINTED = re.compile(r'\{\s{0,20}"job"\s{0,20}:\s{0,20}\{')
_BEGINS_COMMAND = re.compile(r"\s*(--\w|(?:\w+=\S*\s+)*(?:torchrun|python\d?|srun|bash|sh|exec|\S*run_train\.sh)\b)")
_OF_SHELL = re.compile(
    r"#!|#SBATCH|\s*(?:[A-Z_][A-Z0-9_]*\+?=|[A-Z]+$|(?:set|export|if|for|while|case|cd|source|cat|sbatch|module|mkdir|echo)\s)"
)
"""Pattern of lines that belong to a shell script and not to a TOML table. TOML has names in lower case, and blanks
where a shell has none."""


def is_job_file(text: str) -> bool:
    """Return True if the text belongs to torchtitan 0.2: a table, a flag or a printed configuration of that version."""
    return any(pattern.search(text) for pattern in (_OWN_TABLE, _OWN_FLAG, _PRINTED))


def job_file_settings(text: str) -> Settings:
    """Return the settings in a text of torchtitan 0.2. Flags of the command override the tables of the job file.

    Raises:
        InvalidInput: The text is not TOML, JSON, or a command with flags.
    """
    printed = _PRINTED.search(text)
    if printed:
        return _named_as_now(flat(_json(text[printed.start() :])))
    table, commands = _parts(text)
    if not commands.strip():
        return _named_as_now(flat(_toml(table)))
    command = launched(commands)
    values, notes = {**flat(_toml(table)), **overrides(command.arguments)}, Notes(command.notes)
    if not table.strip():
        what = "the file that the command reads was not given"
        notes.assumed("job.config_file", f"{what}; torchtitan's defaults are assumed")
    return _named_as_now(values, command.num_ranks, notes, is_partial=not table.strip())


def _named_as_now(
    values: Mapping[str, object], num_ranks: int | None = None, notes: Iterable[Note] = (), *, is_partial: bool = False
) -> Settings:
    """Return the settings, with those of earlier releases under their present names.

    If both names occur, the present one counts.
    """
    more_notes = Notes(notes)
    values = {name: value for name, value in values.items() if value != {}}
    for name in (name for name in values if name in _RENAMED):
        more_notes.changed(name, f"is of an earlier release and is read as {_RENAMED[name]}")
    moved = {_RENAMED[name]: value for name, value in values.items() if name in _RENAMED}
    today = {name: value for name, value in values.items() if name not in _RENAMED}
    return _settings_of({**moved, **today}, num_ranks, more_notes, is_partial=is_partial)


def _settings_of(
    values: Mapping[str, object], num_ranks: int | None, notes: Iterable[Note], *, is_partial: bool
) -> Settings:
    found = Settings(settings=Flags(values), num_ranks=num_ranks, is_partial=is_partial)
    found.extend(notes)
    return found


def overrides(flags: Flags) -> Mapping[str, object]:
    """Return the values of those flags that name a section, with the same syntax as the library tyro.

    Examples are ``--compile.enable``, ``--compile.no_enable`` and ``--a.b value``. Flags without a section are left
    out.
    """
    values: dict[str, object] = {}
    for name, words in flags.values.items():
        given = [word for word in words if not _SUBCOMMAND.match(word)]
        section, dot, key = name.rpartition(".")
        if dot and not given and key.startswith("no_"):
            values[f"{section}.{key.removeprefix('no_')}"] = False
        elif dot:
            values[name] = given[0] if given else True
    return values


_MAX_PARTS = 32
"""Most parts of a dotted key. Keys of torchtitan have four; the cost of a long key grows with the square of its
length."""

_PIECES, _DOT = re.compile(r"[=,{}\[\]\n]"), re.compile(r"[^.\s]\s*\.")
"""Patterns of the end of a key, and of one part of a key with its dot."""


def _parts(text: str) -> tuple[str, str]:
    """Return the TOML tables and the shell commands of a text."""
    if not _TABLE.search(text):
        return ("", text) if _FLAG.search(text) else (text, "")
    return split_commands(text, _BEGINS_COMMAND, scripts=_OF_SHELL, documents=_TABLE)


def _toml(text: str) -> Mapping[str, object]:
    if any(len(_DOT.findall(piece)) >= _MAX_PARTS for piece in _PIECES.split(text)):
        raise InvalidInput("config", text[:60], f"must have keys with at most {_MAX_PARTS} parts between dots")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # its integers may have too many digits, which is no error of its own
        raise InvalidInput("config", text[:60], f"must be valid TOML ({first_line(error)})") from error


def _json(text: str) -> Mapping[str, object]:
    try:
        document, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("config", text[:60], f"must be valid JSON ({first_line(error)})") from error
    return document  # type: ignore[no-any-return]  # it begins with a brace


# ---------------------------------------------------------------- 0.3
_PYTHON = re.compile(r"^(def \w+\(|from torchtitan\b|import torchtitan\b)", re.MULTILINE)
_CALLS = re.compile(r"\b(Trainer\.Config\(|model_registry\(|ParallelismConfig\(|config_registry import\b)")
_MODULE_FLAG = re.compile(r"--module[= ]\S")
_CONFIG_FLAG = re.compile(r"--config[= ]\w")
_NEW_FLAG = re.compile(r"\bactivation[-_]checkpoint:[a-z]|--compile\.enable[-_]async|--parallelism\.enable[-_]sequence")
_COMMAND = re.compile(r"(--[A-Za-z]|(?:[A-Z_]+=\S*\s+)*(?:torchrun|python\d?|srun|bash|sh|\S*run_train\.sh)\s)")
_CHECKPOINT = re.compile(r"\bactivation[-_]checkpoint:([a-z][a-z_-]*)")

_FAMILIES = ("llama3", "qwen3", "deepseek_v3", "gpt_oss")
_AC = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
"""Recomputation by class of ``torchtitan/distributed/activation_checkpoint.py`` (0.3.0)."""

_MODULE_SECTIONS = ("training", "parallelism", "compile", "optimizer")


def is_configuration(text: str) -> bool:
    """Return True if the text belongs to torchtitan 0.3: Python that builds a configuration, or flags of 0.3 only."""
    names_function = _MODULE_FLAG.search(text) and _CONFIG_FLAG.search(text)
    return bool((_PYTHON.search(text) and _CALLS.search(text)) or names_function or _NEW_FLAG.search(text))


def module_settings(text: str) -> Settings:
    """Return the settings in a text of torchtitan 0.3. Flags of the command override the settings of the function.

    Raises:
        InvalidInput: The text is neither Python nor a command with flags.
    """
    module_text, command_text = split_commands(text, _COMMAND) if _PYTHON.search(text) else ("", text)
    command = launched(command_text) if command_text.strip() else None
    flags = command.arguments if command else Flags()
    notes = Notes(command.notes if command else ())
    function = flags.text("config") or ""
    if module_text.strip():
        values = _of_module(read_module(module_text), function, notes)
    else:
        values = _of_preset(function, notes)
    values |= overrides(flags)
    if checkpoint := _CHECKPOINT.findall(command_text):
        values["activation_checkpoint"] = checkpoint[-1]
    num_ranks = command.num_ranks if command else None
    return _settings_of(values, num_ranks, notes, is_partial="model.flavor" not in values)


def _of_preset(function: str, notes: Notes) -> dict[str, object]:
    known = preset(function)
    if known is None:
        detail = "its settings are not known here; torchtitan's defaults are assumed"
        notes.assumed(f"--config {function}".strip(), detail)
    return dict(known or {})


# ---------------------------------------------------------------- modules
def _of_module(module: Module, function: str, notes: Notes) -> dict[str, object]:
    if not module.functions:
        raise InvalidInput(
            "config", None, "must be a Python module with a function that returns a configuration (Trainer.Config)"
        )
    name = function if function in module.functions else [*module.functions][-1]
    made = module.result(name)
    if not isinstance(made, Made):
        raise InvalidInput(
            "config",
            name,
            "returns a value that is known only when the function runs; write the values out in the function",
        )
    values = {} if made.name.endswith(".Config") else _of_preset(made.name, notes)
    values |= dict(_settings(made))
    family = _family(module, made.name)
    if family:
        values["model.name"] = family
    for said in [name for name, value in values.items() if value is UNKNOWN]:
        notes.ignored(said, "its value is computed by code, which is not run to read it")
        del values[said]
    for line in module.skipped:
        notes.ignored(line[:60], "is not interpreted")
    return values


def _family(module: Module, function: str) -> str:
    """Return the model family: that of the imported registry, or the one with which the function's name begins."""
    imported = module.imports.get("model_registry", "").rpartition(".")[2]
    return imported or next((family for family in _FAMILIES if function.startswith(f"{family}_")), "")


def _settings(made: Made) -> Iterator[tuple[str, object]]:
    for name, value in made.fields.items():
        if name == "activation_checkpoint":
            yield name, _checkpoint(value)
        elif name == "model_spec" and isinstance(value, Made):
            yield from _model(value)
        elif name in _MODULE_SECTIONS and isinstance(value, Made):
            for key, inner in value.fields.items():
                yield f"{name}.{key}", UNKNOWN if isinstance(inner, Made) else inner


def _checkpoint(value: object) -> object:
    if isinstance(value, Made):
        return _AC.get(_class(value), UNKNOWN)
    return "none" if value is None else UNKNOWN


def _class(made: Made) -> str:
    """Return the name of the class whose ``Config`` was created."""
    return made.name.removesuffix(".Config").rpartition(".")[2]


def _model(registry: Made) -> Iterator[tuple[str, object]]:
    flavor = registry.fields.get("flavor", registry.arguments[0] if registry.arguments else UNKNOWN)
    yield "model.flavor", flavor
    if "attn_backend" in registry.fields:
        yield "model.attn_backend", registry.fields["attn_backend"]
    converters = registry.fields.get("converters")
    if isinstance(converters, list):
        made = [converter for converter in converters if isinstance(converter, Made)]
        yield "model.converters", [_class(converter) for converter in made]
        for converter in made:
            for name in ("recipe_name", "emulate"):
                if name in converter.fields:
                    yield f"model.float8.{name}", converter.fields[name]
