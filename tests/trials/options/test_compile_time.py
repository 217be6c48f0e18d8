"""What dynamo counts, in a process of its own: another test of this one may have compiled something."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import torch
from trials.options.compile_time import compile_time_s
x = torch.ones(4, requires_grad=True)
(2 * x).sum().backward()
assert compile_time_s() == 0.0
double = torch.compile(lambda x: 2 * x, backend="aot_eager")
assert compile_time_s() == 0.0
double(x).sum().backward()
once = compile_time_s()
assert once > 0.0
double(x).sum().backward()
assert compile_time_s() == once
"""


def test_only_compilation_counts_and_only_once() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=100)
