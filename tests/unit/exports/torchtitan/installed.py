"""The installed torchtitan 0.2.2, of which parts are used whose imports need no GPU's packages."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.builders import present

_PARSER = """
import dataclasses, importlib.util, json, logging, sys, types, warnings
warnings.simplefilter("ignore")  # torch's own, while it is imported
package = types.ModuleType("torchtitan")  # its __init__ imports kernels of GPUs, which its parser does not need
package.__path__ = list(importlib.util.find_spec("torchtitan").submodule_search_locations)
sys.modules["torchtitan"] = package
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torchtitan.config import ConfigManager
logging.disable(logging.CRITICAL)  # that there are no tokenizers here
parsed = []
for arguments in json.load(sys.stdin):
    config = ConfigManager().parse_args(arguments)
    schedule = get_schedule_class(config.parallelism.pipeline_parallel_schedule)
    parsed.append({**dataclasses.asdict(config), "single": issubclass(schedule, PipelineScheduleSingle)})
json.dump(parsed, sys.stdout)
"""


def parsed(commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """What torchtitan's own ConfigManager makes of command lines, in one process for all; torch names the schedules."""
    process = subprocess.run(
        [sys.executable, "-c", _PARSER],
        input=json.dumps([list(command) for command in commands]),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return list(json.loads(process.stdout))


def dealt_layers(num_stages: int, num_layers: int, first_less: int, last_less: int) -> list[list[str]]:
    """Modules of each stage, by torchtitan's own function; raises ValueError where it refuses."""
    function = _function("distributed/pipeline_parallel.py", "generate_llm_fqn_per_model_part")
    return list(function(num_stages, num_layers, first_less, last_less))


def converter_names() -> set[str]:
    """Words of ``model.converters``."""
    texts = (path.read_text() for path in (_package() / "components/quantization").glob("*.py"))
    return {name for text in texts for name in re.findall(r'register_model_converter\(\w+, "([^"]+)"\)', text)}


def registered(family: str) -> Mapping[str, Mapping[str, Any]]:
    """Keywords of each flavor of a family, as its table writes them."""
    tree = ast.parse((_package() / "models" / family / "__init__.py").read_text())
    tables = (node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict))
    return {
        ast.literal_eval(key): dict(_keywords(call))
        for table in tables
        for key, call in zip(table.keys, table.values, strict=True)
        if key is not None and isinstance(call, ast.Call)
    }


def _keywords(call: ast.Call) -> Iterator[tuple[str, Any]]:
    for keyword in call.keywords:
        value = keyword.value
        yield str(keyword.arg), dict(_keywords(value)) if isinstance(value, ast.Call) else ast.literal_eval(value)


def _package() -> Path:
    spec = present(find_spec("torchtitan"))
    return Path(next(iter(present(spec.submodule_search_locations))))


def _function(path: str, name: str) -> Callable[..., Any]:
    """A function of torchtitan that needs none of its module's imports."""
    tree = ast.parse((_package() / path).read_text())
    (node,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    names: dict[str, Any] = {}
    exec(compile(ast.Module(body=[node], type_ignores=[]), path, "exec"), names)
    return names[name]  # type: ignore[no-any-return]
