from __future__ import annotations

import json

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import JobStatus
from autotuner.launch.engines.ray.job_log import JobLog


def line(mark: str = "5f3c", **document: object) -> str:
    return f"#{mark} {json.dumps(document)}\n"


def test_nothing_is_known_of_a_driver_that_has_said_nothing() -> None:
    log = JobLog("5f3c")
    log.take("Runtime env is setting up.\n")
    assert log.status is None
    assert not log.has_begun


def test_what_nodes_print_is_put_together_byte_by_byte_however_it_was_cut() -> None:
    log, printed = JobLog("5f3c"), '#autotuner {"text": "größer"}\n'.encode()
    whole = "".join(line(node=1, text=printed[at : at + 3].decode("latin-1")) for at in range(0, len(printed), 3))
    for length in range(0, len(whole) + 1, 7):
        log.take(whole[:length])
    log.take(whole)
    assert log.printed(1, 0) == printed
    assert log.printed(1, 5) == printed[5:]
    assert log.printed(1, len(printed)) == b""
    assert log.printed(0, 0) == b""


def test_a_line_that_is_still_being_written_waits() -> None:
    log, whole = JobLog("5f3c"), line(phase="queued", detail="no room")
    log.take(whole[:-1])
    assert log.status is None
    log.take(whole)
    assert log.status == JobStatus(phase=EngineJobPhase.QUEUED, detail="no room")


def test_lines_of_an_older_job_of_that_name_and_of_ray_say_nothing() -> None:
    log = JobLog("5f3c")
    log.take(line("older", phase="lost", detail="") + "(raylet) warning" + line(phase="running", detail=""))
    assert log.status == JobStatus(phase=EngineJobPhase.RUNNING)
    assert log.has_begun


def test_a_line_that_was_cut_off_says_nothing_and_does_no_harm() -> None:
    log = JobLog("5f3c")
    others = '#5f3c 1\n#5f3c "node"\n#5f3c {"node": null, "text": 1}\n#5f3c ' + "[" * 5_000 + "\n"
    log.take(line(phase="running", detail="")[:-4] + "\n" + line(node=0) + others + line(phase="ended", detail=""))
    assert log.status == JobStatus(phase=EngineJobPhase.ENDED)
