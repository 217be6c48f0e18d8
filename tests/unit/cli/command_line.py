"""The command line as a user runs it: arguments in; text, JSON and an exit code out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotuner.cli import main

JOB = ["--model", "llama-3-70b", "--cluster", "h100:64", "--global-batch-size", "1024", "--seq-len", "8192"]


_SPACE = {"precision": ["bf16"], "tensor_parallel_degree": [1], "pipeline_parallel_degree": [1], "compiled": [True]}


def simulated_cluster(directory: Path, base: str) -> str:
    """The path of a new file that describes a cluster on which nothing runs."""
    path = directory / "dream.json"
    path.write_text(json.dumps({"base": base, "name": "dream", "engine": "simulated"}))
    return str(path)


def simulated_sweep(directory: Path) -> list[str]:
    """The command of a sweep of two trials on a simulated cluster of 1,024 devices."""
    job = ["--model", "llama-3-8b", "--global-batch-size", "1024", "--seq-len", "4096"]
    cluster = simulated_cluster(directory, "h100:1024")
    return ["sweep", *job, "--cluster", cluster, "--trials", "2", "--space", json.dumps(_SPACE)]


class CommandLine:
    """Runs commands on a database of its own."""

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capture = capture
        self.error = ""

    def run(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        output, self.error = self._capture.readouterr()
        assert ended.value.code == code, self.error
        return output

    def error_of(self, *arguments: str, code: int = 2) -> str:
        """What a command that is refused prints to standard error."""
        self.run(*arguments, code=code)
        return self.error

    def run_json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code))
