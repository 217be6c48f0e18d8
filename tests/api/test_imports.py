"""Importing the service reads no data: a catalog is parsed when somebody asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

READ = """
import sys

opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import api.main

for path in opened:
    if {package!r} in path and not path.endswith((".py", ".pyc")):
        print(path)
"""


def test_importing_the_service_reads_no_file_of_ours_but_code() -> None:
    package = str(Path(__file__).parents[2])
    script = READ.format(package=package)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=package)
    read = [line for line in done.stdout.splitlines() if "/.venv/" not in line and "/__pycache__/" not in line]
    assert read == []
