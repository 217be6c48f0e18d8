"""The product's questions as tools of the Model Context Protocol, for agents: ``autotuner mcp``.

Answers are short and typed. Questions are answered in this process, or by a service if a URL is given. Only a service
has sweeps and gates, and it checks the scope of the caller's token as it does over REST.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import version
from typing import Any, ParamSpec, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from autotuner.catalog.kernels import BorrowedConstant
from autotuner.client import Client, job_fields
from autotuner.connections import connect
from autotuner.core import documents
from autotuner.core.errors import AutotunerError
from autotuner.core.sweep_requests import GateCreate, SweepCreate
from autotuner.door import Autotuner
from autotuner.remote import Remote
from autotuner.search.predicted_ranking import PredictedLayout
from autotuner.search.support import PairSupport, SupportLevel

P = ParamSpec("P")
T = TypeVar("T")

_INSTRUCTIONS = (
    "Chooses how a transformer is trained on a cluster: tensor, pipeline, data, context and expert parallelism, "
    "micro-batch size, recomputation, kernels and precision. A layout is written in words, such as "
    "'fsdp8 tp4 mb1 recompute-selective'; every tool reads and writes these words. Start with predict. Predictions are "
    "not measurements: each has an error. MFU is the share of the hardware's peak that training uses, 0 to 1."
)


@dataclass(frozen=True)
class LayoutRow:
    """One predicted layout in the answer of the tool ``predict``, with its speed and memory."""

    layout: str
    mfu: float
    step_time_s: float
    relative_error: float
    """Half of the 80 % interval of the step time, as a share of it."""
    peak_memory_gb: float
    fit_probability: float
    changes_mathematics: bool
    """True if losses may differ from plain bf16 training, as with fp8."""


@dataclass(frozen=True)
class PredictionAnswer:
    """The answer of the tool ``predict``: the best predicted layouts of a job, the best first."""

    summary: str
    num_legal: int | None
    num_fitting: int | None
    layouts: list[LayoutRow]


@dataclass(frozen=True)
class ExportAnswer:
    """The answer of the tool ``export``: a layout as a trainer's arguments and configuration files."""

    arguments: str
    """Arguments for the trainer's command line, quoted for a shell."""
    files: dict[str, str]
    """Text of each file that the trainer reads, by name."""
    environment: dict[str, str]
    usage: str
    not_supported: list[str]
    """Options that the trainer cannot express, and what would run instead."""


@dataclass(frozen=True)
class ImportAnswer:
    """The answer of the tool ``import_script``: the layout in a trainer's configuration, and the job if it is known."""

    layout: str
    trainer: str
    num_ranks: int | None
    model: str
    seq_len: int | None
    global_batch_size: int | None
    notes: list[str]
    """Settings that were assumed, changed or ignored."""


@dataclass(frozen=True)
class CatalogAnswer:
    """The answer of the tool ``catalog``: names that the other tools accept."""

    accelerators: list[str]
    """A cluster is an accelerator and a number of them, such as ``h100-sxm:64``."""
    models: list[str]
    stacks: list[str]


@dataclass(frozen=True)
class SupportRow:
    """One accelerator with one training software in the answer of the tool ``support``."""

    accelerator: str
    stack: str
    level: str
    """``measured``, ``borrowed`` (only runs of other stacks, models or accelerators) or ``assumed`` (no run)."""
    num_runs: int
    """Number of measured runs that predictions were compared with."""


@dataclass(frozen=True)
class SupportAnswer:
    """The answer of the tool ``support``: what of predictions was compared with measured runs."""

    summary: str
    pairs: list[SupportRow]
    """The asked pairs; with a question for all, only pairs that are not assumed."""
    borrowed: list[str]
    """Constants and options that were measured only elsewhere; empty unless one pair was asked for."""
    assumed: list[str]
    """Constants and options that were never measured; empty unless one pair was asked for."""


@dataclass(frozen=True)
class MeasuredRow:
    """One ranked trial in the answer of the tool ``read_sweep``, with its measured speed."""

    rank: int
    trial: str
    layout: str
    mfu: float
    step_time_s: float


@dataclass(frozen=True)
class SweepAnswer:
    """The answer of the tool ``read_sweep``: the state of a sweep, its trials by state, and its best trials."""

    id: str
    state: str
    num_trials: dict[str, int]
    ranking: list[MeasuredRow]


@dataclass(frozen=True)
class Started:
    """A sweep or a gate of the service, with its state. One that was just started continues after this answer."""

    id: str
    state: str


def server(url: str | None = None, token: str | None = None) -> MCPServer[Any]:
    """Return the MCP server with its tools. It has tools for sweeps and gates only if a service is given.

    Args:
        url: Address of a running service; None: this process answers questions.
        token: Token for the service; None: the value of the variable ``AUTOTUNER_TOKEN``.
    """
    made: MCPServer[Any] = MCPServer(
        "autotuner", instructions=_INSTRUCTIONS, version=version("parallelism-autotuner"), log_level="WARNING"
    )
    for tool in _questions(Client(url, token)):
        made.tool()(_refusing(tool))
    if url is not None:
        for tool in _runs(url, token):
            made.tool()(_refusing(tool))
    return made


def _refusing(tool: Callable[P, T]) -> Callable[P, T]:
    """Return the tool with refusals as errors of the protocol: the agent reads the message and can correct itself."""

    @wraps(tool)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return tool(*args, **kwargs)
        except AutotunerError as error:
            raise ToolError(str(error)) from error

    return asked


# ---------------------------------------------------------------- questions
def _questions(client: Client) -> Sequence[Callable[..., Any]]:
    def predict(
        model: str,
        cluster: str,
        global_batch_size: int,
        seq_len: int,
        objective: str = "mfu",
        stack: str = "torch",
        limit: int = 5,
    ) -> PredictionAnswer:
        """Predict the fastest layouts of a job.

        model is a name of the catalog (llama-3-70b), cluster an accelerator and how many (h100:64). objective is mfu,
        tokens_per_dollar, tokens_per_joule or another metric. Nothing runs; it takes about a second.
        """
        more = {"objective": {"metric": objective}, "stack": stack, "limit": limit}
        answer = client.predict(model, cluster, global_batch_size=global_batch_size, seq_len=seq_len, **more)
        found = answer.value
        return PredictionAnswer(
            answer.report.headline, found.num_legal, found.num_fitting, [_row(one) for one in found.items]
        )

    def explain(model: str, cluster: str, layout: str, global_batch_size: int, seq_len: int) -> str:
        """Explain how a layout uses time and memory, what limits it, and which change would help; as Markdown."""
        work = {"global_batch_size": global_batch_size, "seq_len": seq_len}
        return client.explain(model, cluster, layout, **work).to_markdown()

    def export(
        model: str, cluster: str, layout: str, trainer: str, global_batch_size: int, seq_len: int
    ) -> ExportAnswer:
        """Write a layout as flags or files of a trainer.

        trainer is megatron-lm, megatron-bridge, nemo, torchtitan, deepspeed, accelerate, transformers, torchrun or
        sbatch.
        """
        work = {"global_batch_size": global_batch_size, "seq_len": seq_len}
        found = client.export(model, cluster, layout, trainer, **work).value
        return ExportAnswer(
            arguments=found.command_line,
            files={file.name: file.text for file in found.files},
            environment=dict(found.environment),
            usage=found.usage,
            not_supported=[reason.message for reason in found.unsupported],
        )

    def import_script(text: str, num_ranks: int | None = None) -> ImportAnswer:
        """Read the layout in the text of a launch script or of a trainer's configuration. Nothing in it is run."""
        found = client.import_script(text, num_ranks=num_ranks).value
        return ImportAnswer(
            layout=found.label,
            trainer=str(found.format),
            num_ranks=found.num_ranks,
            model=found.model_name or (found.model.name if found.model else ""),
            seq_len=found.seq_len,
            global_batch_size=found.global_batch_size,
            notes=[f"{note.kind} {note.setting}: {note.detail}" for note in found.notes],
        )

    def plan(model: str, tokens: float, global_batch_size: int, seq_len: int, accelerators: list[str]) -> str:
        """Compare clusters of some accelerators for a training run by time, cost and energy; as Markdown.

        tokens is the length of the run, such as 1e12. An empty list of accelerators compares the usual ones.
        """
        more: dict[str, Any] = {"accelerators": accelerators} if accelerators else {}
        work = {"global_batch_size": global_batch_size, "seq_len": seq_len}
        return client.plan(model, tokens=tokens, **work, **more).to_markdown()

    def catalog() -> CatalogAnswer:
        """List the accelerators, models and training software that the other tools accept by name."""
        door = Autotuner()
        return CatalogAnswer(
            [one.name for one in door.list_accelerators().items],
            [one.name for one in door.list_catalog_models().items],
            [one.name for one in door.list_stacks().items],
        )

    def support(model: str = "", accelerator: str = "", stack: str = "") -> SupportAnswer:
        """Show what of predictions is measured, borrowed and assumed, by accelerator and training software.

        Empty means all. With an accelerator and a stack, the answer names what is borrowed and assumed.
        """
        answer = client.support(model or None, accelerator or None, stack=stack or None)
        found, details = answer.value, answer.value.details
        return SupportAnswer(
            summary=answer.report.headline,
            pairs=[_pair(one) for one in found.pairs if details or one.level != SupportLevel.ASSUMED],
            borrowed=[*map(_constant, details.borrowed), *details.borrowed_choices] if details else [],
            assumed=[*map(_constant, details.assumed), *details.assumed_choices] if details else [],
        )

    return predict, explain, export, import_script, plan, catalog, support


def _pair(found: PairSupport) -> SupportRow:
    return SupportRow(found.accelerator, found.stack, found.level.value, sum(one.runs for one in found.measured))


def _constant(one: BorrowedConstant) -> str:
    return f"{one.constant}: {one.origin}"


def _row(found: PredictedLayout) -> LayoutRow:
    prediction = found.prediction
    return LayoutRow(
        layout=found.label,
        mfu=prediction.mfu,
        step_time_s=prediction.step_time_s,
        relative_error=prediction.relative_error,
        peak_memory_gb=prediction.peak_bytes / 1e9,
        fit_probability=prediction.fit_probability,
        changes_mathematics=found.changes_mathematics,
    )


# ---------------------------------------------------------------- sweeps and gates
def _runs(url: str, token: str | None) -> Sequence[Callable[..., Any]]:
    def asked(question: Callable[[Remote], T]) -> T:
        with connect(url, token=token) as service:
            return question(service)

    def list_sweeps(limit: int = 10) -> list[Started]:
        """List the newest sweeps of the service: id and state."""
        return asked(
            lambda service: [Started(one.id, str(one.state)) for one in service.list_sweeps(limit=limit).items]
        )

    def read_sweep(sweep_id: str, limit: int = 5) -> SweepAnswer:
        """Read the state of a sweep and its best trials. Their figures are of trials, not of predictions."""

        def read(service: Remote) -> SweepAnswer:
            sweep, ranked = service.read_sweep(sweep_id), service.rank_sweep(sweep_id, limit=limit).items
            rows = [
                MeasuredRow(one.rank, one.id, str(one.layout), one.reached.mfu, one.reached.step_time_s)
                for one in ranked
                if one.rank is not None and one.reached is not None
            ]
            return SweepAnswer(sweep.id, str(sweep.state), {str(k): v for k, v in sweep.num_trials.items()}, rows)

        return asked(read)

    def start_sweep(model: str, cluster: str, global_batch_size: int, seq_len: int, num_trials: int = 8) -> Started:
        """Start trials of the most promising layouts on a cluster. They occupy it; the token needs the scope run."""
        body = job_fields(model, cluster, global_batch_size, seq_len) | {"budget": {"num_trials": num_trials}}
        made = asked(lambda service: service.create_sweep(documents.read(SweepCreate, body)))
        return Started(made.id, str(made.state))

    def start_gate(model: str, cluster: str, layout: str, global_batch_size: int, seq_len: int) -> Started:
        """Check whether training became slower than the stored baseline.

        It runs trials, and the token needs the scope run.
        """
        body = job_fields(model, cluster, global_batch_size, seq_len) | {"layout": layout}
        made = asked(lambda service: service.create_gate(documents.read(GateCreate, body)))
        return Started(made.id, str(made.state))

    return list_sweeps, read_sweep, start_sweep, start_gate
