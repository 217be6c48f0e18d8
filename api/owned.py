"""What a route changes, once it is clear that the caller may: its maker does, and an admin."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path

from api.dependencies import AppOf, CallerOf, Name, SweepOf
from autotuner.core.run import Run
from autotuner.core.sweep import Sweep
from autotuner.core.upkeep import MfuGate, Retune

CheckId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["ck-7d2mxq4zab"])]
GateId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["ga-4kq2mxw7ab"])]


OptimizerStudyId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["os-4kq2mxw7ab"])]


def _sweep(sweep: SweepOf, caller: CallerOf) -> Sweep:
    caller.require_own("sweep", sweep.id, sweep.created_by)
    return sweep


OwnSweepOf = Annotated[Sweep, Depends(_sweep)]


def _retune(app: AppOf, name: Name, caller: CallerOf) -> Retune:
    retune = app.store.retunes.get(name)
    caller.require_own("retune", name, retune.created_by)
    return retune


OwnRetuneOf = Annotated[Retune, Depends(_retune)]


def _gate(app: AppOf, gate_id: GateId, caller: CallerOf) -> MfuGate:
    gate = app.store.mfu_gates.get(gate_id)
    caller.require_own("gate", gate_id, gate.created_by)
    return gate


OwnGateOf = Annotated[MfuGate, Depends(_gate)]


def _optimizer_study(app: AppOf, study_id: OptimizerStudyId, caller: CallerOf) -> Run:
    study: Run = app.store.runs.get("study", study_id)
    caller.require_own("optimizer study", study_id, study.created_by)
    return study


OwnOptimizerStudyOf = Annotated[Run, Depends(_optimizer_study)]


def _check(app: AppOf, check_id: CheckId, caller: CallerOf) -> Run:
    check: Run = app.store.runs.get("check", check_id)
    caller.require_own("check", check_id, check.created_by)
    return check


OwnCheckOf = Annotated[Run, Depends(_check)]
