"""What each node of an engine's job runs; travels as JSON to ``trials.process.node``."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotuner.core import check
from autotuner.core.runs.trial_spec import TrialSpec

__all__ = ["NodeTask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """A trial of ours, a trainer's command, or a module that measures, the same on every node.

    Attributes:
        job_name: Marks every process of it (``AUTOTUNER_ATTEMPT_ID``).
        num_nodes: Nodes that run it.
        ranks_per_node: Ranks on each.
        time_limit_s: From a node's start; then its ranks write their stacks and are ended, whoever still listens.
        spec: The trial; None where ``module`` is no trial.
        module: What torchrun runs where there is no command, as ``python -m module --spec FILE --reports FILE``.
        request: What ``module`` is given as its spec where it is no trial, as JSON.
        command: Of a trainer, once per node, in the place of torchrun; may hold ``{folder}`` (of ``files``),
            ``{python}``, ``{num_nodes}``, ``{node_rank}``, ``{ranks_per_node}``, ``{master_address}`` and
            ``{master_port}``, which only the node knows.
        working_directory: Where the command is started; empty: in the node's own folder for the job.
        passed: Names of the node's variables that the command gets; of ours all pass.
        variables: Variables beside them.
        files: Texts by name, written where ``{folder}`` says before the command is started.
    """

    job_name: str
    num_nodes: int
    ranks_per_node: int
    time_limit_s: float
    spec: TrialSpec | None = None
    module: str = "trials"
    request: str = ""
    command: tuple[str, ...] = ()
    working_directory: str = ""
    passed: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.positive(self, "num_nodes", "ranks_per_node", "time_limit_s")
