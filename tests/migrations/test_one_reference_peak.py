"""Revision 0004: what was stored as a share of each precision's peak becomes a share of one peak per sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, text

from autotuner.domain.layouts.choice import Precision
from autotuner.domain.runs.trial import Trial
from autotuner.ports import Store
from autotuner.store.engine import make_engine, writing
from autotuner.store.schema import alembic_config
from autotuner.store.sql import open_store
from tests.migrations.saved import load

ROUNDING = 1e-12
"""A few products and quotients of doubles."""

PEAKS = {"fp32": 50e12, "bf16": 1000e12, "fp8": 2000e12, "fp8_emulated": 1000e12}
FLOP_PER_STEP = 400e12
WORLD_SIZE = 2
STEP_TIMES = {"bf16": 1.0, "fp8": 0.8, "fp8_emulated": 0.5, "fp32": 10.0}
"""Seconds, in the order in which the trials ran; by MFU in its old sense fp32 came first and fp8 last."""


def old_mfu(precision: str) -> float:
    return FLOP_PER_STEP / (STEP_TIMES[precision] * WORLD_SIZE * PEAKS[precision])


def new_mfu(precision: str) -> float:
    return FLOP_PER_STEP / (STEP_TIMES[precision] * WORLD_SIZE * PEAKS["bf16"])


def add_mixed_sweep(connection: Connection) -> None:
    """A finished sweep over precisions on two GPUs, as revision 0003 stored one."""
    old = "SELECT request FROM sweeps WHERE id = 'sw-finished00'"
    request = json.loads(connection.scalar(text(old)) or "")
    accelerator = request["job"]["cluster"]["accelerator"]
    accelerator |= {"kind": "cuda"} | {f"{word}_flop_per_s": PEAKS[word] for word in ("fp32", "bf16", "fp8")}
    insert(
        connection,
        "sweeps",
        id="sw-mixed00000",
        request=json.dumps(request),
        state="complete",
        created_at=50.0,
        cancel_requested=False,
        stop_detail="",
    )
    for number, precision in enumerate(STEP_TIMES):
        add_mixed_trial(connection, number, precision)


def add_mixed_trial(connection: Connection, number: int, precision: str) -> None:
    trial_id = f"sw-mixed00000-{number:04d}"
    trial = connection.execute(text("SELECT * FROM trials WHERE id = 'sw-finished00-0001'")).one()._asdict()
    document = json.loads(connection.scalar(text("SELECT document FROM measurements")) or "")
    mfu, step_time_s = old_mfu(precision), STEP_TIMES[precision]
    peak = PEAKS[precision] * WORLD_SIZE
    rates = {"mfu": mfu, "hfu": 1.25 * mfu}
    changes = {
        "id": trial_id,
        "sweep_id": "sw-mixed00000",
        "number": number,
        "layout": json.dumps(json.loads(trial["layout"]) | {"precision": precision}),
        "prediction": json.dumps(json.loads(trial["prediction"]) | rates),
    }
    insert(connection, "trials", **trial | changes)
    figures = {"step_time_s": step_time_s, "tokens_per_s": 512 / step_time_s}
    document |= rates | figures | {"peak_flop_per_s": peak, "model_flop_per_s": FLOP_PER_STEP / step_time_s}
    keys = {"trial_id": trial_id, "sweep_id": "sw-mixed00000"}
    insert(connection, "measurements", **keys, mfu=mfu, **figures, document=json.dumps(document))
    step = {"schema_version": 1, "step": 0, "is_warmup": False, "loss": 5.5, "mfu": mfu, **figures}
    insert(connection, "steps", trial_id=trial_id, step=0, document=json.dumps(step))
    for sequence, kind in (
        (3 * number + 1, "trial.started"),
        (3 * number + 2, "trial.step"),
        (3 * number + 3, "trial.finished"),
    ):
        data = {"trial_id": trial_id, "mfu": None if kind == "trial.started" else mfu}
        insert(
            connection, "events", sweep_id="sw-mixed00000", sequence=sequence, at=60.0, kind=kind, data=json.dumps(data)
        )


def insert(connection: Connection, table: str, **values: Any) -> None:
    columns = ", ".join(values)
    connection.execute(
        text(f"INSERT INTO {table} ({columns}) VALUES ({', '.join(f':{name}' for name in values)})"), values
    )


def stored(connection: Connection) -> dict[str, Any]:
    """All that the sweep's rows say of MFU and of peaks, by table."""
    tables = {
        "trials": "SELECT prediction FROM trials WHERE sweep_id = 'sw-mixed00000' ORDER BY id",
        "measurements": "SELECT document FROM measurements WHERE sweep_id = 'sw-mixed00000' ORDER BY trial_id",
        "steps": "SELECT document FROM steps WHERE trial_id LIKE 'sw-mixed%' ORDER BY trial_id",
        "events": "SELECT CAST(data AS TEXT) FROM events WHERE sweep_id = 'sw-mixed00000' ORDER BY sequence",
    }
    return {name: [json.loads(found) for found in connection.scalars(text(query))] for name, query in tables.items()}


@pytest.fixture
def url(empty_url: str) -> str:
    """A database at revision 0003 with a sweep that mixed precisions, led to 0004 and on to what the store reads."""
    engine = make_engine(empty_url)
    with writing(engine) as connection:
        load(connection, "0003")
        add_mixed_sweep(connection)
        command.upgrade(alembic_config(connection), "head")
    engine.dispose()
    return empty_url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


def trials(store: Store) -> dict[str, Trial]:
    listed, _ = store.list_trials("sw-mixed00000")
    return {trial.layout.precision.label: store.get_trial(trial.id) for trial in listed}


def test_a_sweep_that_mixed_precisions_is_ranked_by_tokens_per_s(store: Store) -> None:
    ranked, _ = store.ranking("sw-mixed00000")
    assert [trial.layout.precision for trial in ranked] == [Precision.FP8, Precision.BF16, Precision.FP32]
    rates = [trial.measurement.tokens_per_s for trial in ranked if trial.measurement]
    assert rates == sorted(rates, reverse=True)


def test_every_measured_mfu_becomes_a_share_of_the_same_peak(store: Store) -> None:
    for precision, trial in trials(store).items():
        found = trial.measurement
        assert found is not None
        assert found.mfu == pytest.approx(new_mfu(precision), rel=ROUNDING)
        assert found.hfu == pytest.approx(1.25 * new_mfu(precision), rel=ROUNDING)
        assert found.peak_flop_per_s == PEAKS["bf16"] * WORLD_SIZE
        assert found.precision_utilization == pytest.approx(old_mfu(precision), rel=ROUNDING)


def test_every_prediction_becomes_a_share_of_the_same_peak(store: Store) -> None:
    for precision, trial in trials(store).items():
        assert trial.prediction.mfu == pytest.approx(new_mfu(precision), rel=ROUNDING)
        assert trial.prediction.hfu == pytest.approx(1.25 * new_mfu(precision), rel=ROUNDING)
        assert trial.prediction.precision_utilization == old_mfu(precision)


def test_steps_and_events_say_the_same_as_the_measurement(store: Store) -> None:
    for trial in trials(store).values():
        assert trial.measurement is not None
        told = [event.data for event in store.events("sw-mixed00000") if event.data["trial_id"] == trial.id]
        for mfu in (trial.steps[0].mfu, told[1]["mfu"], told[2]["mfu"]):
            assert mfu == pytest.approx(trial.measurement.mfu, rel=ROUNDING)
        assert told[0]["mfu"] is None


def test_what_trials_on_cores_measured_refers_to_the_first_trials_peak(store: Store) -> None:
    first, second, _ = store.list_trials("sw-finished00")[0]
    assert first.measurement is not None
    assert second.measurement is not None
    assert (first.measurement.mfu, first.measurement.peak_flop_per_s) == (0.25, 200e9)
    assert (second.measurement.mfu, second.measurement.peak_flop_per_s) == (0.25, 400e9)
    assert second.measurement.precision_utilization is None


def test_the_revision_can_be_undone_to_what_was_stored(empty_url: str) -> None:
    engine = make_engine(empty_url)
    with writing(engine) as connection:
        load(connection, "0003")
        add_mixed_sweep(connection)
        before = stored(connection)
        command.upgrade(alembic_config(connection), "0004")
        assert stored(connection) != before
    with writing(engine) as connection:
        command.downgrade(alembic_config(connection), "0003")
        after = stored(connection)
    engine.dispose()
    for table, documents in before.items():
        for old, new in zip(documents, after[table], strict=True):
            numbers = {name: value for name, value in old.items() if isinstance(value, float)}
            assert {name: new[name] for name in numbers} == pytest.approx(numbers, rel=ROUNDING)
            assert new.keys() == old.keys()
