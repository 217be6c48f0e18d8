"""Reports the steps of your own training loop to the autotuner, with three lines in that loop.

    import autotuner_report

    report = autotuner_report.start()                # just before the loop
    for batch in batches:
        ...                                          # one optimizer step
        report.step(loss=loss, tokens=num_tokens)    # on every rank

If the autotuner did not start the process, nothing is measured or written, so the lines may stay in your code. An error
in this module never reaches the loop: reporting ends, with one line on standard error.

The module needs Python 3.8 or newer and only the standard library. If the package is not installed, copy this file to
the folder of the training script.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from typing import Any

REPORT_DIR = "AUTOTUNER_REPORT_DIR"
"""Environment variable with the directory of the reports, which has one file of JSON lines per rank."""

SPEC = "AUTOTUNER_SPEC"
"""Environment variable with the specification of the trial as JSON."""

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Environment variables in which torchrun, Open MPI, MPICH and Slurm give the rank of a process."""


def start(rank: int | None = None) -> Reporter:
    """Return an object that reports the steps of this process; the time of the first step starts now.

    Args:
        rank: Rank of this process in the whole job. If it is None, the first step reads the rank from
            ``torch.distributed`` or from the launcher's variables.
    """
    return Reporter(os.environ.get(REPORT_DIR), rank)


def spec() -> dict[str, Any] | None:
    """Return the specification of the trial: model, workload, layout, seed and settings.

    The result is None if the autotuner did not start this process.

    Raises:
        ValueError: The environment variable with the specification holds no JSON. Training with other settings would
            give a wrong result.
    """
    text = os.environ.get(SPEC)
    return json.loads(text) if text else None


def layout() -> dict[str, Any] | None:
    """Return the layout to try as a dictionary of its fields; None if the autotuner did not start this process.

    Raises:
        ValueError: The environment variable with the specification holds no JSON.
    """
    asked = spec()
    return None if asked is None else asked["layout"]


class Reporter:
    """Writes reports of steps to the file of this rank; does nothing if the autotuner did not start this process."""

    def __init__(self, directory: str | None, rank: int | None = None) -> None:
        self._directory = directory
        self._rank = rank
        self._file: int | None = None
        self._num_steps = 0
        self._has_warned = False
        self._last_s = time.perf_counter()

    def step(
        self,
        loss: Any = None,
        tokens: int | None = None,
        *,
        step_time_s: float | None = None,
        num_steps: int = 1,
    ) -> None:
        """Report the optimizer step that has just ended.

        Args:
            loss: Loss of this rank, as a number or a tensor with one element; None if this rank does not know it.
            tokens: Tokens of the whole job in this step; None: as many as the autotuner requested.
            step_time_s: Time of the step, if the training loop measures it; None: the time since the last call of this
                method. With None, the method first waits until the CUDA device has finished its work.
            num_steps: Number of steps since the last call, if not every step is reported. Time and loss are then means
                over these steps.
        """
        if not self._directory:
            return
        try:
            self._report(loss, tokens, step_time_s, num_steps)
        except Exception as error:  # any error: training continues
            self._directory = None
            self._warn(f"reporting ends before step {self._num_steps}: {error!r}")

    def _report(self, loss: Any, tokens: int | None, step_time_s: float | None, num_steps: int) -> None:
        if step_time_s is None:
            step_time_s = self._since_last_s() / num_steps
        else:
            self._last_s = time.perf_counter()
        is_first, self._num_steps = self._num_steps == 0, self._num_steps + num_steps
        line = {
            "step": self._num_steps - 1,
            "rank": self._known_rank(),
            "step_time_s": float(step_time_s),
            "num_steps": num_steps,
            "loss": self._number(loss),
            "tokens": None if tokens is None else int(tokens),
            "peak_bytes": _peak_bytes(),
            **({"environment": _environment()} if is_first else {}),
        }
        self._append((json.dumps(line) + "\n").encode())  # a NaN loss is written as NaN

    def _since_last_s(self) -> float:
        cuda = _cuda()
        if cuda is not None:
            cuda.synchronize()
        now_s = time.perf_counter()
        since_last_s, self._last_s = now_s - self._last_s, now_s
        return since_last_s

    def _append(self, line: bytes) -> None:
        """Write a line in a single call, so that it is kept even if the process dies right after."""
        if self._file is None:
            path = os.path.join(str(self._directory), f"rank-{self._known_rank()}.jsonl")
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.write(self._file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _known_rank(self) -> int:
        if self._rank is None:
            self._rank = _rank()
        return self._rank

    def _number(self, loss: Any) -> float | None:
        if loss is None:
            return None
        try:
            return float(loss)
        except (TypeError, ValueError, RuntimeError) as error:
            self._warn(f"a loss is left out: {error!r}")
            return None

    def _warn(self, message: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be full, closed or missing
                sys.stderr.write(f"autotuner_report: {message}\n")


def _rank() -> int:
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return int(next((os.environ[name] for name in _RANK_VARIABLES if os.environ.get(name)), 0))


def _cuda() -> Any:
    """Return torch's CUDA module if this process already uses it, else None; nothing is imported or initialised."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def _environment() -> dict[str, str]:
    """Return the versions of Python and of imported packages, and the name of the device, as far as they are known."""
    packages = {"torch": "torch", "transformer-engine": "transformer_engine", "flash-attn": "flash_attn"}
    known = {name: getattr(sys.modules.get(package), "__version__", None) for name, package in packages.items()}
    facts = {"python": sys.version.split()[0]}
    facts.update({name: str(version) for name, version in known.items() if version is not None})
    cuda = _cuda()
    if cuda is not None:
        with contextlib.suppress(Exception):  # builds for other devices may name these differently
            facts["device"] = str(cuda.get_device_name())
            facts["cuda"] = str(sys.modules["torch"].version.cuda)
            facts["nccl"] = ".".join(map(str, cuda.nccl.version()))
    return facts


def _peak_bytes() -> int | None:
    """Return the peak memory in bytes: of tensors on the CUDA device, else of this process.

    None if neither is known.
    """
    cuda = _cuda()
    if cuda is not None:
        return int(cuda.max_memory_allocated())
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            # not ru_maxrss, which on Linux begins with what the process that started this one had (exec keeps it)
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return _peak_by_rusage()


def _peak_by_rusage() -> int | None:
    try:
        import resource  # noqa: PLC0415  # Windows has none
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
