"""Questions that only torch can answer, asked of a process of their own: the service never imports it."""

from __future__ import annotations

import os
import subprocess
import sys

from autotuner.errors import AutotunerError, InvalidInput

__all__ = ["ask_torch"]

_EXIT_REFUSED = 2


def ask_torch(module: str, question: str, *, timeout_s: float) -> str:
    """The last line that ``python -m module`` prints when it is given the question on its standard input.

    Raises:
        InvalidInput: The process refused the question, or torch is not installed.
        AutotunerError: It broke, or took too long.
    """
    command = [sys.executable, "-m", module]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, input=question, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise AutotunerError(f"{module} had no answer after {timeout_s:.0f} s") from error
    if done.returncode == 0:
        return done.stdout.splitlines()[-1]
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    if "No module named 'torch'" in last:
        raise InvalidInput("torch", None, "is not installed here; see the extra `trials` of pyproject.toml")
    if done.returncode == _EXIT_REFUSED:
        raise InvalidInput(module, "as given", last)
    raise AutotunerError(f"{module} failed: {last}")
