"""What a stored trial takes on the disk: as it is written, as the last release wrote it, and thinned."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import create_engine, text

from autotuner.store.copying import backup
from autotuner.store.sql import open_store
from bench.filled_store import fill

_NUM_SWEEPS = 20
_NUM_TRIALS = 200

_WHOLE = """UPDATE events SET data = (
  SELECT json_patch(steps.document, events.data) FROM steps
  WHERE steps.trial_id = json_extract(events.data, '$.trial_id') AND steps.step = json_extract(events.data, '$.step')
) WHERE kind = 'trial.step'"""
"""Write the report of every step into its event, too."""


def main() -> None:
    """Print the sizes."""
    with TemporaryDirectory(prefix="autotuner-size-") as folder:
        url = f"sqlite:///{folder}/autotuner.db"
        fill(url, num_sweeps=_NUM_SWEEPS, num_trials=_NUM_TRIALS)
        _say("as it is written", url, Path(folder) / "written.db")
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text(_WHOLE))
        engine.dispose()
        _say("as the last release wrote it", url, Path(folder) / "older.db")
        with closing(open_store(url)) as store:
            while store.retention.thin_sweep(before=1e12, now=1e12):
                pass
        _say("thinned", url, Path(folder) / "thinned.db")


def _say(what: str, url: str, copy: Path) -> None:
    """The size of a copy, which has no page that nothing lies in."""
    backup(url, copy)
    size = copy.stat().st_size
    each = f"{size / _NUM_SWEEPS / _NUM_TRIALS / 1e3:.2f} kB per trial"
    print(f"{what}: {size / 1e6:.1f} MB, {each}", flush=True)  # noqa: T201  # what a bench is for


if __name__ == "__main__":
    main()
