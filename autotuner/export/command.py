"""The training command that a text holds, its flags and variables, and notes of those that no reader asked for."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from autotuner.core.errors import InvalidInput
from autotuner.export.shell import Command, Script, read_script
from autotuner.export.target import Note, NoteKind

_FLAG = re.compile(r"--?[A-Za-z]")
_OFF = ("false", "0", "no", "off", "none", "null", "")


def canonical(name: str) -> str:
    """A flag's name without dashes in front, and with underscores for those inside."""
    return name.lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Flags:
    """What stands behind each flag; the last of equal ones counts, as for argparse."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By ``canonical`` name; a switch has none."""
    asked: set[str] = field(default_factory=set, compare=False, repr=False)
    """Names that a reader asked for; every other flag is one that it does not use."""

    def __contains__(self, name: str) -> bool:
        self.asked.add(canonical(name))
        return canonical(name) in self.values

    def __bool__(self) -> bool:
        return bool(self.values)

    def __or__(self, other: Flags) -> Flags:
        return Flags({**self.values, **other.values})

    def text(self, *names: str) -> str | None:
        """The first value of the first of the flags that is there; None: none is, or it has no value."""
        self.asked.update(map(canonical, names))
        for name in names:
            values = self.values.get(canonical(name))
            if values:
                return values[0]
        return None

    def words(self, name: str) -> tuple[str, ...] | None:
        """Return every value of a flag; None: it is not there."""
        self.asked.add(canonical(name))
        return self.values.get(canonical(name))

    def integer(self, *names: str) -> int | None:
        """A whole number.

        Raises:
            InvalidInput: It is none, or a variable that nothing in the text sets.
        """
        text = self.text(*names)
        if text is None:
            return None
        return whole_number(self._name_of(names), text)

    def number(self, *names: str) -> float | None:
        """A finite number.

        Raises:
            InvalidInput: It is none, or a variable that nothing in the text sets.
        """
        text = self.text(*names)
        return None if text is None else _finite(self._name_of(names), text)

    def switch(self, *names: str) -> bool | None:
        """Whether a switch is on; None: it is not there. A word behind it may turn it off (``--bf16 false``)."""
        self.asked.update(map(canonical, names))
        for name in names:
            if canonical(name) in self.values:
                values = self.values[canonical(name)]
                return not values or values[0].lower() not in _OFF
        return None

    def _name_of(self, names: Sequence[str]) -> str:
        return next((name for name in names if self.values.get(canonical(name))), names[0])


def whole_number(name: str, text: str) -> int:
    """A whole number as a person or a program writes it; ``4e8`` is one.

    Raises:
        InvalidInput: It is none, or a variable that nothing in the text sets.
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
        rule = "is a variable that nothing in the text sets; put its value there, or give the arguments of a run"
        raise InvalidInput(name, text, rule)
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(name, text, rule) from None
    if not math.isfinite(value):
        raise InvalidInput(name, text, rule)
    return value


def flags_of(words: Iterable[str]) -> Flags:
    """Flags of words: ``--name value``, ``--name=value``, ``--name value value``, ``--switch``."""
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


_PROGRAM = re.compile(r"[^-].*\.py")
_LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A training command."""

    launcher: Flags = field(default_factory=Flags)
    """Flags before the program: those of torchrun, srun, deepspeed, accelerate launch."""
    program: str = ""
    """The script or module that trains; empty where the text has arguments alone."""
    arguments: Flags = field(default_factory=Flags)
    """Flags behind it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the script set, plain texts."""
    notes: tuple[Note, ...] = ()
    """What could not be followed, what of the launcher says nothing of a layout, and what became of variables."""

    @property
    def num_ranks(self) -> int | None:
        """Ranks that the launcher starts in all; None: the text does not say."""
        found = self.launcher | self.arguments
        for each, nodes in _RANKS:
            counts = [_count(found, each), _count(found, nodes) or _of_variables(self.variables, _NODES) or 1]
            if counts[0]:
                return prod(count for count in counts if count)
        total = _count(found, ("num_processes", "ntasks", "n"))
        return total or _of_variables(self.variables, ("WORLD_SIZE", "SLURM_NTASKS")) or self._of_nodes()

    def _of_nodes(self) -> int | None:
        each = _of_variables(self.variables, ("SLURM_NTASKS_PER_NODE",))
        nodes = _of_variables(self.variables, _NODES)
        return each * nodes if each and nodes else _of_variables(self.variables, _OF_ONE_NODE)


_RANKS = (
    (("nproc_per_node",), ("nnodes",)),  # torchrun (torch 2.13, distributed/run.py)
    (("num_gpus",), ("num_nodes",)),  # deepspeed (0.19.8, launcher/runner.py)
    (("ntasks_per_node",), ("nodes", "N")),  # srun(1)
)
"""Flags that say ranks of a node, and how many nodes."""

_COUNTED = frozenset(
    (
        *(flag for pair in _RANKS for names in pair for flag in names),
        *("num_processes", "ntasks", "n", "m", "module", "u"),
    )
)
"""Flags that say how many ranks there are; and Python's own."""

_ACCELERATE = frozenset(("accelerate", "accelerate.commands.launch"))
"""Whose flags say a layout, and have a reader of their own."""

_MOST_NAMED = 8

_OF_THE_SHELL = ("PWD", "OLDPWD", "HOME", "USER", "HOSTNAME", "SHELL", "PATH", "PYTHONPATH", "TMPDIR", "RANDOM")
"""Variables that every shell has: nobody expects a script to set them."""

_OF_ONE_NODE = ("NGPU",)
"""Torchtitan's run_train.sh starts so many ranks, on one node."""

_NODES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")


def launched(text: str, document: str = "") -> Launched:
    """The training command of a text.

    Args:
        document: A file that the script writes and that stood in it; it may ask for variables.
        text: A shell script, a command line, arguments alone, or ``/proc/PID/cmdline`` with its NULs.

    Raises:
        InvalidInput: It has no flag at all, or is too large to be read.
    """
    if "\0" in text.strip("\0"):
        return _of_words(
            [word for word in text.strip("\0\n").split("\0") if word], Script(commands=(), variables={}, arrays={})
        )
    script = read_script(text)
    script = replace(script, unused=tuple(name for name in script.unused if not _asks(document, name)))
    nothing = Command(words=(), variables=script.variables)
    certain = [command for command in script.commands if command.is_certain]
    command = max(certain, key=_num_flags, default=nothing)
    if _num_flags(command) == 0:
        command = max(script.commands, key=_num_flags, default=nothing)
    if _num_flags(command) == 0:
        command = Command(words=tuple(_loose_words(script)), variables=script.variables)
    if _num_flags(command) == 0:
        raise InvalidInput("config", text[:60], "has no command with --flags")
    return _of_words(command.words, script, command)


def _num_flags(command: Command) -> int:
    return sum(word.startswith("--") for word in command.words)


def _loose_words(script: Script) -> Iterator[str]:
    """Arguments that variables hold and no command takes: a script's fragment."""
    for elements in script.arrays.values():
        words = [word for element in elements for word in _split(element)]
        if any(word.startswith("--") for word in words):
            yield from words


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _of_words(words: Sequence[str], script: Script, command: Command | None = None) -> Launched:
    at = _program_at(words)
    launcher = flags_of(words[:at]) if at is not None else Flags()
    unfollowed = (*script.notes, *_unresolved(words, script), *(_undecided(command) if command else ()))
    return Launched(
        launcher=launcher,
        program=words[at] if at is not None else "",
        arguments=flags_of(words if at is None else words[at + 1 :]),
        variables=script.variables if command is None else {**script.variables, **command.variables},
        notes=(
            *(Note(kind=NoteKind.IGNORED, setting="script", detail=sentence) for sentence in unfollowed),
            *(() if _ACCELERATE.intersection(words[:at]) else of_launcher(launcher, _COUNTED)),
            *of_variables(script.exported, script.unused),
        ),
    )


def _undecided(command: Command) -> Iterator[str]:
    """Yield what of a command depends on a condition that only a run decides."""
    if not command.is_certain:
        yield "the text does not tell whether the command runs"
    for words in dict.fromkeys(command.left_out):
        yield f"{words[:80]} depends on a condition that only a run decides, and was left out"


def _unresolved(words: Sequence[str], script: Script) -> Iterator[str]:
    """What of these words only a run of the script would tell."""
    names = [name for name in script.unset if name not in _OF_THE_SHELL]
    unset = [name for name in names if any(_asks(word, name) for word in words)]
    unknown = [part for part in script.unknown if any(part in word for word in words)]
    if unset:
        yield f"nothing sets {', '.join(f'${name}' for name in unset[:_MOST_NAMED])}"
    if unknown:
        yield f"only a run would tell {', '.join(unknown[:_MOST_NAMED])}"


def _asks(text: str, name: str) -> bool:
    return re.search(rf"\$\{{?{name}\b", text) is not None


def _program_at(words: Sequence[str]) -> int | None:
    """Where the program stands: the first Python file, or a module that is no launcher."""
    for at, word in enumerate(words):
        if word in ("-m", "--module") and at + 1 < len(words) and words[at + 1] not in _LAUNCHERS:
            return at + 1
        if _PROGRAM.fullmatch(word) and not word.endswith(("/torchrun.py", "launch.py", "/run.py")):
            return at
    return None


def _count(flags: Flags, names: Sequence[str]) -> int | None:
    text = flags.text(*names)
    return _positive(text.rpartition(":")[2]) if text else None  # --nnodes 1:4 has as many as it gets


def _of_variables(variables: Mapping[str, str], names: Sequence[str]) -> int | None:
    return next((count for name in names if (count := _positive(variables.get(name, "")))), None)


def _positive(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 9 and int(text) > 0 else None


_REASONS: tuple[tuple[str, str], ...] = (
    (
        r"use_liger_kernel|liger_kernel_config",
        "Liger's fused kernels change times and memory, and no field of a layout says them",
    ),
    (r"torch_compile_.*|torchdynamo", "a layout says only whether layers are compiled"),
    (r"use_flash_attn.*|attn_implementation|flash_attn.*", "which attention kernel runs is not read from this flag"),
    (r"fsdp_.*wrap.*|fsdp_min_num_params", "a layout wraps each layer"),
    (r"deepspeed_config", "the file is not opened: paste its contents too, or the layout lacks what they say"),
    (r"no_pipeline_parallel", "the number of stages says it"),
    (r"bf16|fp16", "another flag says the number format"),
    (r"max_position_embeddings", "the length of the sequences says what is computed"),
    (r"overlap_.*|tp_comm_overlap.*|tp_comm_.*", "the stack says how much communication is hidden"),
    (
        r"use_mcore_models|transformer_impl|use_legacy_models|.*_fusion(_.*)?|no_persist_layer_norm|persist_layer_norm",
        "which kernels run beside products and attention is a fact of the stack",
    ),
    (r"make_vocab_size_divisible_by", "the vocabulary is taken as it is said, without padding"),
    (
        r"rotary_.*|use_rotary_.*|position_embedding_.*|rope_.*|use_rope_scaling|attention_softmax_in_fp32|apply_layernorm_1p"
        r"|(layer)?norm_epsilon|fp8_(amax|margin|interval).*|squared_relu|openai_gelu|quick_gelu|calculate_per_token_loss",
        "it changes what is computed, and neither time nor memory as they are predicted",
    ),
    (
        r"empty_unused_memory_level|manual_gc.*|use_cpu_initialization|te_rng_tracker|deterministic_mode|enable_experimental"
        r"|high_priority_.*|cuda_graph_.*|enable_cuda_graph|main_(grads|params)_dtype|inference_.*",
        "what it changes of time and memory is not predicted",
    ),
    (r"lora_.*|use_peft|peft_.*|qlora|load_in_[48]bit", "adapters and quantised weights are not modelled"),
    (
        r"lr|lr_.*|min_lr|learning_rate|warmup_.*|weight_decay.*|(start|end)_weight_decay.*|adam_.*|optimizer|optim_.*"
        r"|clip_grad|max_grad_norm|(initial_|min_)?loss_scale.*|hysteresis|seed|init_method_std|.*dropout.*|label_smoothing.*",
        "the optimizer's settings change no time and no memory that is predicted",
    ),
    (
        r"train_(iters|samples|tokens|steps)|max_steps|num_train_epochs|(num_)?epochs|exit_.*|skip_train|do_(train|eval|predict)",
        "how long the training lasts is no part of a layout",
    ),
    (
        r"(\w+_)?data(_.*|set(_.*)?)?|train_file|validation_file|split|dataloader_.*|num_workers|tokenizer.*|vocab_.*|merge_file"
        r"|mock_data|reset_.*|eod_.*|create_attention_mask.*|no_create_attention_mask.*|preprocessing_.*|streaming|packing"
        r"|remove_unused_columns|group_by_length",
        "data and tokenizer are no part of a layout",
    ),
    (
        r"save(_.*)?|load(_.*)?|no_(save|load)_.*|finetune|output_dir|overwrite_output_dir|resume_.*|ckpt_.*|checkpoint_.*"
        r"|dist_ckpt.*|async_save|use_(dist|checkpoint).*|pretrained_.*|override_opt_param_scheduler|cache_dir|hub_.*|push_to_hub",
        "checkpoints are no part of a layout",
    ),
    (
        r"log_.*|logging_.*|report_to|run_name|tensorboard_.*|wandb_.*|eval_.*|evaluation_.*|timing_.*|profile.*|no_barrier.*"
        r"|disable_tqdm|per_device_eval_batch_size|ddp_timeout|distributed_(backend|timeout.*)|local_rank|job_name|one_logger.*",
        "logs, evaluation and process groups are no part of a layout",
    ),
)
"""Why a flag is ignored, by its name."""


def unread(
    flags: Flags, handled: frozenset[str] = frozenset(), spelled: Mapping[str, str] | None = None
) -> Iterator[Note]:
    """Yield a note for every flag that no reader asked for.

    Args:
        flags: With the names that were asked for so far.
        handled: Names that a reader took by another way.
        spelled: How the text spells them, where they are no flags.
    """
    for name, values in flags.values.items():
        if name in flags.asked or name in handled:
            continue
        flag = " ".join((f"--{name.replace('_', '-')}", *values))
        setting = (spelled or {}).get(name, flag)[:60]
        reason = _reason(name)
        if reason:
            yield Note(kind=NoteKind.IGNORED, setting=setting, detail=reason)
        else:
            yield Note(kind=NoteKind.UNKNOWN, setting=setting, detail="is not understood, or has no effect here")


def _reason(name: str) -> str:
    return next((reason for pattern, reason in _REASONS if re.fullmatch(pattern, name)), "")


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
"""Flags of launchers that say where ranks start and how they meet."""

_OF_VARIABLES: tuple[tuple[str, str], ...] = (
    (
        r"(MASTER|MAIN_PROCESS)_.*|(WORLD|NODE|LOCAL)_(SIZE|RANK|WORLD_SIZE)|RANK|NNODES|NPROC.*|NGPU|GPUS_PER_NODE"
        r"|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|SLURM_.*|SRUN_.*|RDZV_.*|PET_.*|HOSTFILE",
        "where ranks start and how they meet is no part of a layout",
    ),
    (
        r"(TORCH_)?NCCL_.*|UCX_.*|UCC_.*|GLOO_.*|FI_.*|OFI_.*|TP_SOCKET.*|SHARP_.*|TORCH_DISTRIBUTED_.*|OMPI_.*|RDMA.*",
        "the network is taken from the description of the cluster",
    ),
    (
        r"CUDA_.*|OMP_.*|MKL_.*|KMP_.*|PYTORCH_.*|TORCH_.*|TORCHINDUCTOR_.*|TRITON_.*|NVTE_.*|CUBLAS.*|CUDNN_.*|XLA_.*|DS_.*"
        r"|FLASH_.*",
        "what it changes of time and memory is not predicted",
    ),
    (
        r"HF_.*|HUGGING.*|TRANSFORMERS_.*|TOKENIZERS_.*|DATASETS_.*|WANDB_.*|MLFLOW_.*|PYTHON.*|(LD_LIBRARY_)?PATH|HOME|TMPDIR"
        r"|\w*(CACHE|LOG|TOKEN|KEY)\w*|VIRTUAL_ENV|CONDA_.*|LC_.*|LANG|http.*_proxy",
        "files, logs and packages are no part of a layout",
    ),
)

COLLECTIVES = "NCCL_(?:ALGO|PROTO|M(?:IN|AX)_NCHANNELS|PXN_DISABLE|IB_QPS_PER_CONNECTION|IB_SPLIT_DATA_ON_QPS)"
"""Variables that a layout has fields for, as a pattern; ``formats`` reads them."""

_READ_ELSEWHERE = re.compile(rf"{COLLECTIVES}|CONFIG_FILE|NGPU|WORLD_SIZE|SLURM_(N|NT|JOB_NUM_N).*")
"""Variables that other readers take (``formats``, ``torchtitan``, and ``Launched``)."""

_MOST_LISTED = 6


def of_launcher(launcher: Flags, counted: Collection[str]) -> Iterator[Note]:
    """Yield what becomes of the flags before the program.

    Args:
        launcher: These flags.
        counted: Names of those that say how many ranks there are.
    """
    rest = [name for name in launcher.values if name not in counted]
    known = [name for name in rest if _OF_LAUNCHERS.fullmatch(name)]
    if known:
        detail = "where ranks start and how they meet is no part of a layout"
        yield Note(kind=NoteKind.IGNORED, setting=_named(map(_flag, known)), detail=detail)
    if others := [name for name in rest if name not in known]:
        detail = "is no flag of a launcher that is known here"
        yield Note(kind=NoteKind.UNKNOWN, setting=_named(map(_flag, others)), detail=detail)


def of_variables(exported: Iterable[str], unused: Iterable[str]) -> Iterator[Note]:
    """Yield what becomes of the variables that a script sets.

    Args:
        exported: Names that the program finds in its environment.
        unused: Names of others that nothing in the script asks for.
    """
    by_reason: dict[str, list[str]] = {}
    for name in exported:
        if not _READ_ELSEWHERE.fullmatch(name):
            reason = next((reason for pattern, reason in _OF_VARIABLES if re.fullmatch(pattern, name)), "")
            by_reason.setdefault(reason, []).append(name)
    unknown = by_reason.pop("", [])
    for reason, names in by_reason.items():
        yield Note(kind=NoteKind.IGNORED, setting=_named(names), detail=reason)
    if unknown:
        detail = "a variable of the environment; what the program makes of it is not known"
        yield Note(kind=NoteKind.UNKNOWN, setting=_named(unknown), detail=detail)
    if names := list(unused):
        yield Note(kind=NoteKind.IGNORED, setting=_named(names), detail="nothing in the script uses it")


def _flag(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def _named(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_MOST_LISTED]) + (f" and {len(every) - _MOST_LISTED} more" if every[_MOST_LISTED:] else "")
