"""The actor of one node of a job on Ray: it starts the node's program, buffers its output, and ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_NOT_FOR_RANKS = ("OMP_NUM_THREADS", "AUTOTUNER_RAY_ORDER")
"""Variables that Ray sets for its workers and that ranks would mistake for the operator's, and one that only the driver
reads."""

_READ_BYTES = 1 << 16
_STDERR_BYTES = 2000


class NodeActor:
    """The Ray actor of one node. The driver calls its methods, several at once, each from its own thread.

    If Ray or the kernel kills the actor, the processes of the node end, too: their supervisor is a child of the actor,
    and the kernel tells it about the actor's end (see ``autotuner.host.supervisor``). Ray sends the code of the class
    to the node. So the Python interpreter of Ray needs none of our packages.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._output = b""
        self._exit_code: int | None = None
        self._last_words = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def place(self) -> tuple[str, int]:
        """Return the address at which other nodes reach this node, and a port of this node that is free now.

        The ranks of the job find each other there if this node is node 0.
        """
        import ray  # noqa: PLC0415  # there where an actor runs; who tests this class needs none

        with socket.socket() as listener:
            listener.bind(("", 0))
            port: int = listener.getsockname()[1]
        return ray.util.get_node_ip_address(), port

    def start(self, python: str, arguments: Sequence[str], task: str) -> None:
        """Start the node's processes and return at once. ``read`` returns the output of the processes.

        Args:
            python: Path of the Python interpreter; empty: the interpreter of this actor.
            arguments: Arguments of ``autotuner.trials.process.node``, without the task.
            task: A ``NodeTask`` as JSON.
        """
        # The kernel tells a child when the thread that started it is gone; this one stays for as long as the child.
        threading.Thread(target=self._keep, args=(python or sys.executable, arguments, task), daemon=True).start()

    def read(self, patience_s: float) -> dict[str, Any]:
        """Return the output of the node's processes since the last call.

        It returns as soon as there is new output, or after ``patience_s`` seconds.

        Returns:
            A dict: ``output`` in bytes; ``exit_code``, which is None while a process of the node is left; and
            ``last_words``, the end of the text that the processes wrote to standard error.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._output or self._exit_code is not None, patience_s)
            output, self._output = self._output, b""
            return {"output": output, "exit_code": self._exit_code, "last_words": self._last_words}

    def stop(self) -> None:
        """Ask the node's processes to end, and return at once. A result of ``read`` shows when they have ended."""
        with self._changed:
            self._is_stopped = True
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)

    def _keep(self, python: str, arguments: Sequence[str], task: str) -> None:
        exit_code = 127
        with tempfile.TemporaryDirectory(prefix="autotuner-", ignore_cleanup_errors=True) as folder:
            try:
                exit_code = self._run(python, arguments, Path(folder), task)
            except OSError as error:
                self._last_words = f"cannot start {python}: {error}"
        with self._changed:
            self._exit_code = exit_code
            self._changed.notify_all()

    def _run(self, python: str, arguments: Sequence[str], folder: Path, task: str) -> int:
        """Run the node's program to its end and return its exit code."""
        (folder / "task.json").write_text(task)
        node = [python, "-m", "autotuner.trials.process.node", *arguments, "--task", str(folder / "task.json")]
        with (folder / "stderr").open("w+b") as stderr:
            with self._changed:
                if self._is_stopped:
                    return 128 + signal.SIGTERM
                process = self._process = subprocess.Popen(
                    [python, "-m", "autotuner.host.supervisor", str(os.getpid()), "0", *node],
                    env={name: value for name, value in os.environ.items() if name not in _NOT_FOR_RANKS},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                )
            self._listen(process)
            exit_code = process.wait()
            stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _STDERR_BYTES))
            self._last_words = stderr.read().decode(errors="replace").strip()
        return exit_code

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Collect the output until no process can print any more."""
        assert process.stdout is not None
        with process.stdout as printed:
            while chunk := os.read(printed.fileno(), _READ_BYTES):
                with self._changed:
                    self._output += chunk
                    self._changed.notify_all()
