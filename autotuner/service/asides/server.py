"""The process that asides are forked from: it has imported what they need, runs one thread, and computes nothing.

``python -m autotuner.service.asides.server MODULE:FUNCTION`` calls the function once, then forks an aside for each
socket that it is handed over its standard input. An aside ends itself when its time is over, and all end with the
service.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, Never

from autotuner.core.errors import AutotunerError
from autotuner.service.asides.frames import Limits, Outcome, receive, send


def main() -> None:
    """Fork asides until the service is gone."""
    control = socket.socket(fileno=sys.stdin.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service is who is interrupted
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that the kernel forgets asides that ended
    _warm(sys.argv[1])
    gc.freeze()  # so that asides share what was imported
    size = len(Limits(seconds=0.0, memory_bytes=0).packed())
    while True:
        packed, descriptors, _, _ = socket.recv_fds(control, size, 1)
        if not packed:
            os.killpg(0, signal.SIGKILL)  # this process leads a group of its own
        if os.fork() == 0:
            _compute(socket.socket(fileno=descriptors[0]), Limits.unpacked(packed))
        os.close(descriptors[0])


def _warm(name: str) -> None:
    module, function = name.split(":")
    getattr(importlib.import_module(module), function)()


def _compute(connection: socket.socket, limits: Limits) -> Never:
    """Answer one question and end; where the time is over or the memory is gone, the process is."""
    gc.disable()  # the process ends with its answer
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)  # SIGALRM ends what nobody handles it in, C code too
    try:
        function, args, kwargs = _received(connection)
        _limit_memory(limits.memory_bytes)
        send(connection, _outcome(function, args, kwargs))
    finally:
        os._exit(0)


def _received(connection: socket.socket) -> Any:
    return receive(connection)


def _outcome(function: Any, args: Any, kwargs: Any) -> tuple[Outcome, object]:
    try:
        return Outcome.ANSWERED, function(*args, **kwargs)
    except AutotunerError as error:
        return Outcome.RAISED, error
    except MemoryError:
        return Outcome.OUT_OF_MEMORY, None
    except Exception:
        return Outcome.BROKEN, traceback.format_exc()


def _limit_memory(num_bytes: int) -> None:
    """Refuse this process more than so many bytes beyond those that it has; where the kernel cannot say, nothing."""
    sizes = Path("/proc/self/statm")
    if sizes.exists():
        has_bytes = int(sizes.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (has_bytes + num_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
