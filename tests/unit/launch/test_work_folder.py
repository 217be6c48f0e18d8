from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from autotuner.launch.work_folder import work_folder

HELD = """
import sys
from pathlib import Path
from autotuner.launch.work_folder import work_folder
with work_folder(Path(sys.argv[1]), "another") as folder:
    (folder / "rank-0.log").write_text("step 1")
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_gone_with_its_block_and_all_that_was_put_there(tmp_path: Path) -> None:
    with work_folder(tmp_path / "trials", "mine") as folder:
        (folder / "logs").mkdir()
        (folder / "logs" / "rank-0.log").write_text("step 1")
    assert list((tmp_path / "trials").iterdir()) == []


def test_folders_of_a_launcher_that_was_killed_go_with_the_next_and_those_of_one_that_lives_stay(
    tmp_path: Path,
) -> None:
    (tmp_path / "not-ours").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HELD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with work_folder(tmp_path, "mine"):
            assert {path.name for path in tmp_path.iterdir()} == {"another", "mine", "not-ours"}
        other.kill()
        other.wait()
        assert (tmp_path / "another" / "rank-0.log").exists()
    with work_folder(tmp_path, "mine"):
        assert {path.name for path in tmp_path.iterdir()} == {"mine", "not-ours"}
