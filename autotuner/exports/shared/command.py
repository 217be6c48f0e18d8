"""Finds the training command in a text, its flags and variables, and makes notes of those that are not used."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotuner.core.errors import InvalidInput
from autotuner.exports.shared.shell import Command, Script, read_script
from autotuner.exports.shared.target import Note, NoteKind, Notes

_FLAG = re.compile(r"--?[A-Za-z]")
_OFF = ("false", "0", "no", "off", "none", "null", "")


def canonical(name: str) -> str:
    """Return the name of a flag in one form for all spellings: without leading dashes, and with underscores inside.

    ``--tp-size`` and ``--tp_size`` both become ``tp_size``.
    """
    return name.lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Flags:
    """Settings by name: the flags of a command line, or the values of a document.

    Each reading method records the names that it looks up, so that ``unread`` can report all other settings. A method
    that takes several names uses the first name that has a value, and returns None if none of them has. It raises
    ``InvalidInput`` if the value has the wrong type, or refers to a variable that nothing in the text sets.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    """Values by ``canonical`` name of the flag. The words after a flag are a tuple, which is empty for a switch. Of
    equal flags the last counts, as in argparse."""
    asked: set[str] = field(default_factory=set, compare=False, repr=False)
    """Names that a reader has looked up so far. ``unread`` reports all other names."""

    def __contains__(self, name: str) -> bool:
        self.asked.add(canonical(name))
        return canonical(name) in self.values

    def __bool__(self) -> bool:
        return bool(self.values)

    def __or__(self, other: Flags) -> Flags:
        return Flags({**self.values, **other.values})

    def text(self, *names: str) -> str | None:
        """Return the value of a setting as a text. If the value has several words, return the first word."""
        name, value = self._first(names)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)  # selective_ac_option = 2
        if not isinstance(value, str | None):
            raise InvalidInput(name, value, "must be text")
        return value

    def words(self, name: str) -> tuple[str, ...] | None:
        """Return all words of a setting; None if the setting is missing.

        If the value is one text, it is split at its commas.
        """
        self.asked.add(canonical(name))
        value = self.values.get(canonical(name))
        if isinstance(value, str):
            value = [word for word in value.split(",") if word]
        if value is not None and not _are_texts(value):
            raise InvalidInput(name, value, "must be a list of strings")
        return None if value is None else tuple(value)

    def rows(self, name: str) -> tuple[tuple[str, ...], ...]:
        """Return the value of a setting that is a list of lists of texts, as tuples; empty without the setting."""
        value = self._first((name,))[1]
        if value in (None, "None", ""):
            return ()
        rows: Sequence[Any] = value if isinstance(value, list) else [value]
        if not all(map(_are_texts, rows)):
            raise InvalidInput(name, value, "must be a list of lists of strings")
        return tuple(map(tuple, rows))

    def integer(self, *names: str) -> int | None:
        """Return the value of a setting as a whole number; None if the setting is missing."""
        name, value = self._first(names)
        if isinstance(value, str):
            return whole_number(name, value)
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise InvalidInput(name, value, "must be a whole number")
        return value

    def number(self, *names: str) -> float | None:
        """Return the value of a setting as a finite number; None if the setting is missing."""
        name, value = self._first(names)
        return None if value is None else _finite(name, str(value))

    def switch(self, *names: str) -> bool | None:
        """Return True if a switch is on, False if it is off, None if it is missing.

        A word after the flag may turn it off (``--bf16 false``).
        """
        self.asked.update(map(canonical, names))
        name = next((name for name in names if canonical(name) in self.values), None)
        if name is None:
            return None
        value = self.values[canonical(name)]
        if isinstance(value, tuple):
            return not value or value[0].lower() not in _OFF
        if str(value).lower() not in ("true", "false"):
            raise InvalidInput(name, value, "must be true or false")
        return str(value).lower() == "true"

    def _first(self, names: Sequence[str]) -> tuple[str, Any]:
        """Return the first of the names that has a value, and the value; of several words, the first."""
        self.asked.update(map(canonical, names))
        for name in names:
            value = self.values.get(canonical(name))
            if value is not None and value != ():
                return name, value[0] if isinstance(value, tuple) else value
        return names[0], None


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)


def whole_number(name: str, text: str) -> int:
    """Return the number in a text if it is a whole number, in any usual notation, such as ``4e8`` or ``1_000``.

    Args:
        name: Name of the setting, for error messages.
        text: The text of the setting's value.

    Raises:
        InvalidInput: The text is not a whole number, or refers to a variable that nothing sets.
    """
    plain = text.replace("_", "").strip()
    if re.fullmatch(r"[+-]?\d{1,18}", plain):
        return int(plain)
    value = _finite(name, text, "must be a whole number")
    if value != int(value) or abs(value) >= 1e18:
        raise InvalidInput(name, text, "must be a whole number", None if abs(value) >= 1e18 else round(value))
    return int(value)


def _finite(name: str, text: str, rule: str = "must be a number") -> float:
    if "$" in text or "`" in text:
        rule = "is a variable that the script does not set; put its value there, or give the arguments of a run"
        raise InvalidInput(name, text, rule)
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(name, text, rule) from None
    if not math.isfinite(value):
        raise InvalidInput(name, text, rule)
    return value


def flags_of(words: Iterable[str]) -> Flags:
    """Return the flags in the words of a command.

    These forms are read: ``--name value``, ``--name=value``, ``--name value value``, ``--switch``.
    """
    values: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in words:
        if _FLAG.match(word):
            spelled, equals, value = word.partition("=")
            name = canonical(spelled)
            values[name] = (value,) if equals else ()
        elif name:
            values[name] = (*values[name], word)
    return Flags(values)


# ---------------------------------------------------------------- the training command
_PROGRAM = re.compile(r"[^-].*\.py")
_LAUNCHERS = (
    *("torch.distributed.run", "torch.distributed.launch"),
    *("accelerate.commands.launch", "deepspeed.launcher.runner"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A training command as read from a text: its launcher (such as torchrun), its program, and the flags of both.

    It also has the environment variables that the script sets.
    """

    launcher: Flags = field(default_factory=Flags)
    """Flags before the program: those of torchrun, srun, deepspeed or accelerate launch."""
    program: str = ""
    """Name of the script or module that trains; empty if the text contains only arguments."""
    arguments: Flags = field(default_factory=Flags)
    """Flags after the program."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the script sets to plain texts."""
    notes: tuple[Note, ...] = ()
    """Notes about parts that could not be followed, about launcher options that are not part of a layout, and about
    variables."""

    @property
    def num_ranks(self) -> int | None:
        """The number of ranks that the launcher starts on all nodes together; None if the command does not give it."""
        found = self.launcher | self.arguments
        nodes = _of_variables(self.variables, "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
        for each, of_nodes in _RANKS:
            if count := _count(found, each):
                return count * (_count(found, of_nodes) or nodes or 1)
        each_node = _of_variables(self.variables, "SLURM_NTASKS_PER_NODE")
        return (
            _count(found, ("num_processes", "ntasks", "n"))
            or _of_variables(self.variables, "WORLD_SIZE", "SLURM_NTASKS")
            or (each_node * nodes if each_node and nodes else None)
            or _of_variables(self.variables, "NGPU")  # of torchtitan's run_train.sh, which starts one node
        )


_RANKS = (
    (("nproc_per_node",), ("nnodes",)),  # torchrun (torch 2.13, distributed/run.py)
    (("num_gpus",), ("num_nodes",)),  # deepspeed (0.19.8, launcher/runner.py)
    (("ntasks_per_node",), ("nodes", "N")),  # srun(1)
)
"""Flags that set the number of ranks per node and the number of nodes."""

_COUNTED = {name for pair in _RANKS for names in pair for name in names} | {"num_processes", "ntasks", "n"}
_OF_PYTHON = {"m", "module", "u"}

_ACCELERATE = frozenset(("accelerate", "accelerate.commands.launch"))
"""Launchers whose flags describe a layout. They have readers of their own."""

_OF_THE_SHELL = ("PWD", "OLDPWD", "HOME", "USER", "HOSTNAME", "SHELL", "PATH", "PYTHONPATH", "TMPDIR", "RANDOM")
"""Variables that every shell sets, so that a script may use them without setting them."""


def launched(text: str, document: str = "") -> Launched:
    """Return the training command in a text, with its flags.

    If the text has several commands, the function prefers commands that run in every case, then the command with the
    most flags.

    Args:
        text: A shell script, a command line, arguments alone, or ``/proc/PID/cmdline`` with its NULs.
        document: A configuration file that the script writes, and that was removed from ``text``. Its variables do not
            count as unused.

    Raises:
        InvalidInput: The text has no flag at all, or is too large to be read.
    """
    if "\0" in text.strip("\0"):
        return _of_command(Command(words=tuple(filter(None, text.strip("\0\n").split("\0")))), Script())
    script = read_script(text)
    script = replace(script, unused=tuple(name for name in script.unused if not _asks(document, name)))
    commands = [
        *sorted(script.commands, key=lambda one: (one.is_certain, _num_flags(one)), reverse=True),
        Command(words=tuple(_loose_words(script)), variables=script.variables),
    ]
    command = next(filter(_num_flags, commands), None)
    if command is None:
        raise InvalidInput(
            "config", text[:60], "must contain a command with flags, for example torchrun train.py --micro-batch-size 1"
        )
    return _of_command(command, script)


def _num_flags(command: Command) -> int:
    return sum(word.startswith("--") for word in command.words)


def _loose_words(script: Script) -> Iterator[str]:
    """Yield arguments in variables that no command uses, as in a fragment of a script."""
    for elements in script.arrays.values():
        words = [word for element in elements for word in _split(element)]
        if any(word.startswith("--") for word in words):
            yield from words


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _of_command(command: Command, script: Script) -> Launched:
    words, notes = command.words, Notes()
    at = _program_at(words)
    launcher = flags_of(words[:at]) if at is not None else Flags()
    for sentence in unfollowed(command, script):
        notes.ignored("script", sentence)
    if not _ACCELERATE.intersection(words[:at]):
        _note_launcher(launcher, notes)
    _note_environment(script, notes)
    return Launched(
        launcher=launcher,
        program=words[at] if at is not None else "",
        arguments=flags_of(words if at is None else words[at + 1 :]),
        variables={**script.variables, **command.variables},
        notes=tuple(notes),
    )


def unfollowed(command: Command, script: Script) -> Iterator[str]:
    """Yield sentences, without full stops, on the parts of a script that the import could not follow.

    Examples are variables that nothing sets, values that are only known when the script runs, and commands under an
    unknown condition.
    """
    yield from script.notes
    names = [f"${name}" for name in script.unset if name not in _OF_THE_SHELL]
    if unset := [name for name in names if any(_asks(word, name[1:]) for word in command.words)]:
        yield f"the script does not set {', '.join(unset[:8])}"
    if unknown := [part for part in script.unknown if any(part in word for word in command.words)]:
        yield f"only a run of the script would show the value of {', '.join(unknown[:8])}"
    if not command.is_certain:
        yield "the script does not show whether the command runs"
    for words in dict.fromkeys(command.left_out):
        yield (f"{words[:80]} depends on a condition that only a run of the script decides, so it was left out")


def _asks(text: str, name: str) -> bool:
    return re.search(rf"\$\{{?{name}\b", text) is not None


def _program_at(words: Sequence[str]) -> int | None:
    """Return the index of the program in the words: the first Python file, or a module that is not a launcher."""
    for at, word in enumerate(words):
        if word in ("-m", "--module") and at + 1 < len(words) and words[at + 1] not in _LAUNCHERS:
            return at + 1
        if _PROGRAM.fullmatch(word) and not word.endswith(("/torchrun.py", "launch.py", "/run.py")):
            return at
    return None


def _count(flags: Flags, names: Sequence[str]) -> int | None:
    text = flags.text(*names)
    # --nnodes 1:4: the number of nodes is not known before the launch
    return _positive(text.rpartition(":")[2]) if text else None


def _of_variables(variables: Mapping[str, str], *names: str) -> int | None:
    return next((count for name in names if (count := _positive(variables.get(name, "")))), None)


def _positive(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 9 and int(text) > 0 else None


# ---------------------------------------------------------------- what no reader asked for
_REASONS: tuple[tuple[str, str], ...] = (
    (
        r"use_liger_kernel|liger_kernel_config",
        "Liger's fused kernels change times and memory, which a layout cannot express",
    ),
    (r"torch_compile_.*|torchdynamo", "a layout only has one switch for compiled layers"),
    (r"use_flash_attn.*|attn_implementation|flash_attn.*", "this flag is not used to find the attention kernel"),
    (r"fsdp_.*wrap.*|fsdp_min_num_params", "a layout always wraps each layer"),
    (
        r"deepspeed_config",
        ("the file is not read: paste its contents too, because its settings are missing from the layout"),
    ),
    (r"no_pipeline_parallel", "the number of stages decides this"),
    (r"bf16|fp16", "another flag sets the number format"),
    (r"max_position_embeddings", "the length of the sequences decides what is computed"),
    (r"overlap_.*|tp_comm_overlap.*|tp_comm_.*", "the software stack decides how much communication is hidden"),
    (
        r"use_mcore_models|transformer_impl|use_legacy_models|.*_fusion(_.*)?|no_persist_layer_norm|persist_layer_norm",
        "the software stack decides which kernels run besides matrix products and attention",
    ),
    (r"make_vocab_size_divisible_by", "the vocabulary is read without padding"),
    (
        r"rotary_.*|use_rotary_.*|position_embedding_.*|rope_.*|use_rope_scaling|attention_softmax_in_fp32|apply_layernorm_1p"
        r"|(layer)?norm_epsilon|fp8_(amax|margin|interval).*|squared_relu|openai_gelu|quick_gelu|calculate_per_token_loss",
        "this changes the result of the computation, but not the predicted time or memory",
    ),
    (
        r"empty_unused_memory_level|manual_gc.*|use_cpu_initialization|te_rng_tracker|deterministic_mode|enable_experimental"
        r"|high_priority_.*|cuda_graph_.*|enable_cuda_graph|main_(grads|params)_dtype|inference_.*",
        "its effect on time and memory is not predicted",
    ),
    (r"lora_.*|use_peft|peft_.*|qlora|load_in_[48]bit", "adapters and quantised weights are not predicted"),
    (
        r"lr|lr_.*|min_lr|learning_rate|warmup_.*|weight_decay.*|(start|end)_weight_decay.*|adam_.*|optimizer|optim_.*"
        r"|clip_grad|max_grad_norm|(initial_|min_)?loss_scale.*|hysteresis|seed|init_method_std|.*dropout.*|label_smoothing.*",
        "settings of the optimizer do not change the predicted time or memory",
    ),
    (
        r"train_(iters|samples|tokens|steps)|max_steps|num_train_epochs|(num_)?epochs|exit_.*|skip_train|do_(train|eval|predict)",
        "the length of the training is not part of a layout",
    ),
    (
        r"(\w+_)?data(_.*|set(_.*)?)?|train_file|validation_file|split|dataloader_.*|num_workers|tokenizer.*|vocab_.*|merge_file"
        r"|mock_data|reset_.*|eod_.*|create_attention_mask.*|no_create_attention_mask.*|preprocessing_.*|streaming|packing"
        r"|remove_unused_columns|group_by_length",
        "data and tokenizer are not part of a layout",
    ),
    (
        r"save(_.*)?|load(_.*)?|no_(save|load)_.*|finetune|output_dir|overwrite_output_dir|resume_.*|ckpt_.*|checkpoint_.*"
        r"|dist_ckpt.*|async_save|use_(dist|checkpoint).*|pretrained_.*|override_opt_param_scheduler|cache_dir|hub_.*|push_to_hub",
        "checkpoints are not part of a layout",
    ),
    (
        r"log_.*|logging_.*|report_to|run_name|tensorboard_.*|wandb_.*|eval_.*|evaluation_.*|timing_.*|profile.*|no_barrier.*"
        r"|disable_tqdm|per_device_eval_batch_size|ddp_timeout|distributed_(backend|timeout.*)|local_rank|job_name|one_logger.*",
        "logs, evaluation and process groups are not part of a layout",
    ),
)
"""Reasons why flags are ignored, by a pattern of the flag's name."""


def unread(
    flags: Flags, handled: frozenset[str] = frozenset(), spelled: Mapping[str, str] | None = None
) -> Iterator[Note]:
    """Yield a note for each flag that the import did not use, because it does not affect a layout or is unknown.

    Args:
        flags: All flags, with the names that the import has looked up so far.
        handled: Names that were read in another way, and get no note.
        spelled: For settings from a file instead of flags: the text of each setting as the file has it, by name.
    """
    for name, values in flags.values.items():
        if name in flags.asked or name in handled:
            continue
        flag = " ".join((f"--{name.replace('_', '-')}", *values))
        setting = (spelled or {}).get(name, flag)[:60]
        reason = _first_match(name, _REASONS)
        kind = NoteKind.IGNORED if reason else NoteKind.UNKNOWN
        yield Note(
            kind=kind, setting=setting, detail=reason or "is not a known setting, or has no effect on the layout"
        )


# ---------------------------------------------------------------- beside the program
_OF_LAUNCHERS = re.compile(
    # torchrun (torch 2.13, distributed/run.py)
    r"rdzv_.*|standalone|max_restarts|monitor_interval|start_method|role|no_python|run_path|log_dir|r|redirects|t|tee"
    r"|local_ranks_filter|node_rank|local_addr|logs_specs|use_env|numa_binding|duplicate_.*|master_(addr|port)"
    # deepspeed (0.19.8, launcher/runner.py)
    r"|H|hostfile|i|include|e|exclude|min_elastic_nodes|max_elastic_nodes|launcher(_args)?|force_multi|ssh_port|no_ssh.*"
    r"|enable_each_rank_log|bind_cores.*|bind_core_list|save_pid|venv_script|no_local_rank"
    # srun(1), Slurm 25.05
    r"|[AcDeJKlopqtuwx]|account|partition|qos|time|job_name|output|error|label|unbuffered|export|chdir|nodelist|exclude"
    r"|constraint|reservation|exclusive|gres|gpus.*|cpus_per_.*|mem|mem_.*|cpu_bind|gpu_bind|mpi|wait|kill_on_bad_exit"
    r"|no_kill|overlap|exact|container_.*|jobid|environment|ntasks_per_(gpu|core|socket)|cpu_freq|signal|open_mode"
)
"""Flags of launchers that say where ranks start and how they connect."""

_NO_PART = "the place of the ranks and the way they connect are not part of a layout"
_OF_VARIABLES: tuple[tuple[str, str], ...] = (
    (
        r"(MASTER|MAIN_PROCESS)_.*|(WORLD|NODE|LOCAL)_(SIZE|RANK|WORLD_SIZE)|RANK|NNODES|NPROC.*|NGPU|GPUS_PER_NODE"
        r"|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|SLURM_.*|SRUN_.*|RDZV_.*|PET_.*|HOSTFILE",
        _NO_PART,
    ),
    (
        r"(TORCH_)?NCCL_.*|UCX_.*|UCC_.*|GLOO_.*|FI_.*|OFI_.*|TP_SOCKET.*|SHARP_.*|TORCH_DISTRIBUTED_.*|OMPI_.*|RDMA.*",
        "the network is read from the description of the cluster",
    ),
    (
        r"CUDA_.*|OMP_.*|MKL_.*|KMP_.*|PYTORCH_.*|TORCH_.*|TORCHINDUCTOR_.*|TRITON_.*|NVTE_.*|CUBLAS.*|CUDNN_.*|XLA_.*|DS_.*"
        r"|FLASH_.*",
        "its effect on time and memory is not predicted",
    ),
    (
        r"HF_.*|HUGGING.*|TRANSFORMERS_.*|TOKENIZERS_.*|DATASETS_.*|WANDB_.*|MLFLOW_.*|PYTHON.*|(LD_LIBRARY_)?PATH|HOME|TMPDIR"
        r"|\w*(CACHE|LOG|TOKEN|KEY)\w*|VIRTUAL_ENV|CONDA_.*|LC_.*|LANG|http.*_proxy",
        "files, logs and packages are not part of a layout",
    ),
)

COLLECTIVES = "NCCL_(?:ALGO|PROTO|M(?:IN|AX)_NCHANNELS|PXN_DISABLE|IB_QPS_PER_CONNECTION|IB_SPLIT_DATA_ON_QPS)"
"""Pattern of NCCL variables that set fields of a layout; ``formats`` reads them."""

_READ_ELSEWHERE = re.compile(rf"{COLLECTIVES}|CONFIG_FILE|NGPU|WORLD_SIZE|SLURM_(N|NT|JOB_NUM_N).*")
"""Pattern of variables that other readers use (``formats``, ``torchtitan``, and ``Launched``)."""

_MOST_LISTED = 6


def _note_launcher(launcher: Flags, notes: Notes) -> None:
    """Add notes about the launcher's flags that do not set the number of ranks."""
    rest = [name for name in launcher.values if name not in _COUNTED | _OF_PYTHON]
    if known := [name for name in rest if _OF_LAUNCHERS.fullmatch(name)]:
        notes.ignored(_listed(map(_flag, known)), _NO_PART)
    if others := [name for name in rest if name not in known]:
        notes.unknown(_listed(map(_flag, others)), "is not a known flag of a launcher")


def _note_environment(script: Script, notes: Notes) -> None:
    """Add notes about the variables that a script sets."""
    by_reason: dict[str, list[str]] = {}
    for name in script.exported:
        if not _READ_ELSEWHERE.fullmatch(name):
            by_reason.setdefault(_first_match(name, _OF_VARIABLES), []).append(name)
    unknown = by_reason.pop("", [])
    for reason, names in by_reason.items():
        notes.ignored(_listed(names), reason)
    if unknown:
        notes.unknown(_listed(unknown), "is an environment variable whose effect on the program is not known")
    if script.unused:
        notes.ignored(_listed(script.unused), "the script does not use it")


def _first_match(name: str, reasons: Iterable[tuple[str, str]]) -> str:
    return next((reason for pattern, reason in reasons if re.fullmatch(pattern, name)), "")


def _flag(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_MOST_LISTED]) + (f" and {len(every) - _MOST_LISTED} more" if every[_MOST_LISTED:] else "")
