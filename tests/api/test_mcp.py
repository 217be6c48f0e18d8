"""``autotuner mcp`` answers an agent, which speaks to it by the protocol's own SDK."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import Client, StdioServerParameters

from autotuner.core.access import Scope
from autotuner.mcp import server
from tests.api.access import People

JOB = {"model": "llama-3-8b", "cluster": "h100:8", "global_batch_size": 64, "seq_len": 8192}
LAYOUT = "fsdp8 mb1 recompute-selective"


def asked(of: Any, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    """Connect a client to a server, and return what ``ask`` gets there."""

    async def connected() -> Any:
        async with Client(of) as client:
            return await ask(client)

    return asyncio.run(connected())


def told(of: Any, tool: str, **arguments: Any) -> Any:
    """Call a tool, and return its structured answer, or the message of its refusal."""
    result = asked(of, lambda client: client.call_tool(tool, arguments))
    return result.content[0].text if result.is_error else result.structured_content


def test_an_agent_starts_the_command_and_gets_typed_answers_to_questions() -> None:
    command = StdioServerParameters(command=sys.executable, args=["-m", "autotuner.cli", "mcp"])

    async def ask(client: Client) -> tuple[set[str], Any]:
        tools = (await client.list_tools()).tools
        assert all(tool.description and tool.output_schema for tool in tools)
        return {tool.name for tool in tools}, await client.call_tool("predict", JOB | {"limit": 2})

    names, found = asked(command, ask)
    assert names == {"predict", "explain", "export", "import_script", "plan", "catalog", "support"}
    first, second = found.structured_content["layouts"]
    assert first["mfu"] >= second["mfu"] > 0.3
    assert 0 < first["peak_memory_gb"] < 80


def test_layouts_go_from_tool_to_tool_in_words() -> None:
    tools = server()
    assert LAYOUT in told(tools, "explain", layout=LAYOUT, **JOB)["result"]
    exported = told(tools, "export", layout=LAYOUT, trainer="torchtitan", **JOB)
    assert "data_parallel_shard_degree = 8" in exported["files"]["torchtitan.toml"]
    read = told(tools, "import_script", text=exported["files"]["torchtitan.toml"], num_ranks=8)
    assert (read["trainer"], read["layout"].split()[:2]) == ("torchtitan", LAYOUT.split()[:2])
    planned = told(
        tools, "plan", model="llama-3-8b", tokens=1e9, global_batch_size=64, seq_len=4096, accelerators=["h100-sxm"]
    )
    assert "h100-sxm" in planned["result"]
    assert "h100-sxm" in told(tools, "catalog")["accelerators"]


def test_support_lists_known_pairs_and_for_one_pair_what_is_borrowed_and_assumed() -> None:
    tools = server()
    every = told(tools, "support", model="llama-3-8b")
    assert {one["level"] for one in every["pairs"]} == {"measured", "borrowed"}
    assert every["borrowed"] == []
    one = told(tools, "support", accelerator="mi300x", stack="nemo")
    assert [(pair["accelerator"], pair["level"], pair["num_runs"]) for pair in one["pairs"]] == [
        ("mi300x", "assumed", 0)
    ]
    assert "clock: assumed, as on H100" in one["assumed"]
    assert "did you mean 'mi300x'" in told(tools, "support", accelerator="mi300")


def test_a_refusal_names_the_value_and_the_nearest_legal_one() -> None:
    assert "llama-3-8b" in told(server(), "predict", **JOB | {"model": "llama-3-8c"})


def test_sweeps_and_gates_are_those_of_a_service_which_asks_for_the_scope_to_start_one(people: People) -> None:
    run, read = server(people.address, people.token()), server(people.address, people.token(Scope.READ, "rita"))
    job = {"model": "llama-demo", "cluster": "cpu:2", "global_batch_size": 8, "seq_len": 64}
    assert "scope" in told(read, "start_sweep", **job)
    started = told(run, "start_sweep", **job)
    assert [one["id"] for one in told(read, "list_sweeps")["result"]] == [started["id"]]
    assert told(read, "read_sweep", sweep_id=started["id"])["ranking"] == []
