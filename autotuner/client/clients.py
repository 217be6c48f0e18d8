"""Client and AsyncClient: the operations of the service, sent at once or awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, overload

import httpx

from api.schemas import SweepDetail
from autotuner.client import operations
from autotuner.client.call import PREFIX, Call, checked
from autotuner.client.server_events import EventLines, ServerEvent

P = ParamSpec("P")
T = TypeVar("T")

_TIMEOUT_S = 60.0
"""A sweep on ``local`` makes the service measure its cores before it answers."""

_AGAIN_S = 1.0
"""Before a stream of events that was cut is opened again."""


class _Operation(Generic[P, T]):
    """An operation as a method: of a ``Client`` it answers, of an ``AsyncClient`` it is awaited."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self._make = make

    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AsyncClient, owner: type[AsyncClient]) -> Callable[P, Awaitable[T]]: ...

    @overload
    def __get__(self, client: None, owner: type[_Operations]) -> Callable[P, Call[T]]: ...

    def __get__(
        self, client: Client | AsyncClient | None, owner: type[_Operations]
    ) -> Callable[P, T] | Callable[P, Awaitable[T]] | Callable[P, Call[T]]:
        if client is None:
            return self._make
        return update_wrapper(partial(self._send, client), self._make)  # type: ignore[return-value]  # of the client's kind

    def _send(self, client: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> T | Awaitable[T]:
        return client.send(self._make(*args, **kwargs))


class _Operations:
    """Every operation of the OpenAPI document, under its name there."""

    create_sweep = _Operation(operations.create_sweep)
    preview_sweep = _Operation(operations.preview_sweep)
    list_sweeps = _Operation(operations.list_sweeps)
    read_sweep = _Operation(operations.read_sweep)
    cancel_sweep = _Operation(operations.cancel_sweep)
    pause_sweep = _Operation(operations.pause_sweep)
    resume_sweep = _Operation(operations.resume_sweep)
    change_budget = _Operation(operations.change_budget)
    clone_sweep = _Operation(operations.clone_sweep)
    rerun_trial = _Operation(operations.rerun_trial)
    list_trials = _Operation(operations.list_trials)
    rank_sweep = _Operation(operations.rank_sweep)
    read_table = _Operation(operations.read_table)
    read_table_csv = _Operation(operations.read_table_csv)
    rank_all = _Operation(operations.rank_all)
    read_trial = _Operation(operations.read_trial)
    read_rules = _Operation(operations.read_rules)
    read_answer = _Operation(operations.read_answer)
    read_choices = _Operation(operations.read_choices)
    read_failures = _Operation(operations.read_failures)
    read_front = _Operation(operations.read_front)
    read_layers = _Operation(operations.read_layers)
    read_accuracy = _Operation(operations.read_accuracy)
    predict = _Operation(operations.predict)
    create_plan = _Operation(operations.create_plan)
    read_plan = _Operation(operations.read_plan)
    explain_layout = _Operation(operations.explain_layout)
    report_layers = _Operation(operations.report_layers)
    plan_job_phases = _Operation(operations.plan_job_phases)
    compare_layouts = _Operation(operations.compare_layouts)
    explain_trial = _Operation(operations.explain_trial)
    draw_bandwidth_curve = _Operation(operations.draw_bandwidth_curve)
    read_bandwidth_curve = _Operation(operations.read_bandwidth_curve)
    read_link_timelines = _Operation(operations.read_link_timelines)
    read_timeline = _Operation(operations.read_timeline)
    read_parts = _Operation(operations.read_parts)
    list_calibrations = _Operation(operations.list_calibrations)
    list_formats = _Operation(operations.list_formats)
    export_layout = _Operation(operations.export_layout)
    export_trial = _Operation(operations.export_trial)
    import_configuration = _Operation(operations.import_configuration)
    read_topology = _Operation(operations.read_topology)
    list_optimizer_studies = _Operation(operations.list_optimizer_studies)
    create_optimizer_study = _Operation(operations.create_optimizer_study)
    read_optimizer_study = _Operation(operations.read_optimizer_study)
    cancel_optimizer_study = _Operation(operations.cancel_optimizer_study)
    list_retunes = _Operation(operations.list_retunes)
    create_retune = _Operation(operations.create_retune)
    read_retune = _Operation(operations.read_retune)
    remove_retune = _Operation(operations.remove_retune)
    pause_retune = _Operation(operations.pause_retune)
    resume_retune = _Operation(operations.resume_retune)
    adopt_layout = _Operation(operations.adopt_layout)
    run_retune = _Operation(operations.run_retune)
    list_retune_runs = _Operation(operations.list_retune_runs)
    read_retune_trend = _Operation(operations.read_retune_trend)
    read_retune_run = _Operation(operations.read_retune_run)
    create_gate = _Operation(operations.create_gate)
    list_gates = _Operation(operations.list_gates)
    read_gate = _Operation(operations.read_gate)
    cancel_gate = _Operation(operations.cancel_gate)
    read_gate_junit = _Operation(operations.read_gate_junit)
    read_gate_summary = _Operation(operations.read_gate_summary)
    read_gate_badge = _Operation(operations.read_gate_badge)
    list_baselines = _Operation(operations.list_baselines)
    remove_baseline = _Operation(operations.remove_baseline)
    read_baseline_badge = _Operation(operations.read_baseline_badge)
    list_webhooks = _Operation(operations.list_webhooks)
    create_webhook = _Operation(operations.create_webhook)
    read_webhook = _Operation(operations.read_webhook)
    remove_webhook = _Operation(operations.remove_webhook)
    test_webhook = _Operation(operations.test_webhook)
    list_deliveries = _Operation(operations.list_deliveries)
    send_again = _Operation(operations.send_again)
    json_feed = _Operation(operations.json_feed)
    atom_feed = _Operation(operations.atom_feed)
    list_models = _Operation(operations.list_models)
    read_model = _Operation(operations.read_model)
    save_model = _Operation(operations.save_model)
    remove_model = _Operation(operations.remove_model)
    list_clusters = _Operation(operations.list_clusters)
    read_cluster = _Operation(operations.read_cluster)
    save_cluster = _Operation(operations.save_cluster)
    remove_cluster = _Operation(operations.remove_cluster)
    list_engines = _Operation(operations.list_engines)
    create_check = _Operation(operations.create_check)
    list_checks = _Operation(operations.list_checks)
    list_links = _Operation(operations.list_links)
    read_check = _Operation(operations.read_check)
    cancel_check = _Operation(operations.cancel_check)
    read_caller = _Operation(operations.read_caller)
    list_tokens = _Operation(operations.list_tokens)
    create_token = _Operation(operations.create_token)
    revoke_token = _Operation(operations.revoke_token)
    read_audit = _Operation(operations.read_audit)
    list_attention = _Operation(operations.list_attention)
    list_workers = _Operation(operations.list_workers)
    list_accelerators = _Operation(operations.list_accelerators)
    read_accelerator = _Operation(operations.read_accelerator)
    list_catalog_models = _Operation(operations.list_catalog_models)
    list_networks = _Operation(operations.list_networks)
    list_stacks = _Operation(operations.list_stacks)
    list_stack_profiles = _Operation(operations.list_stack_profiles)
    list_trainers = _Operation(operations.list_trainers)
    health = _Operation(operations.health)
    ready = _Operation(operations.ready)


class Client(_Operations):
    """The REST API, each call answered when it returns.

    Every method is an operation of the API. A problem that the service answers with is raised as ``ServiceError``, a
    service that does not answer as httpx says it.

    Args:
        url: Where the service is, such as ``http://127.0.0.1:8000``.
        token: Shown to a service that has a login.
        http: In the place of a client of its own, to set proxies, certificates or timeouts.
    """

    def __init__(self, url: str, *, token: str | None = None, http: httpx.Client | None = None) -> None:
        self._http = http or httpx.Client(timeout=_TIMEOUT_S)
        self._http.base_url = httpx.URL(url)
        self._http.headers.update(_shown(token))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send a call.

        Raises:
            ServiceError: The service answered with a problem.
        """
        return call.read(self._http.request(**call.request))

    def events(self, sweep_id: str, *, after: int = 0) -> Iterator[ServerEvent]:
        """Events of a sweep until it is finished, as they happen; a stream that is cut is opened again.

        Raises:
            ServiceError: The service answered with a problem.
        """
        while True:
            lines = EventLines()
            try:
                with self._http.stream("GET", **_stream(sweep_id, after)) as response:
                    if response.is_error:
                        response.read()
                    checked(response)
                    for line in response.iter_lines():
                        for event in lines.add(line):
                            after = event.sequence
                            yield event
                    return
            except httpx.TransportError:
                time.sleep(_AGAIN_S)

    def wait(self, sweep_id: str) -> SweepDetail:
        """The sweep once it is finished; errors as for ``events``."""
        for _ in self.events(sweep_id):
            pass
        return self.read_sweep(sweep_id)


class AsyncClient(_Operations):
    """The same calls to be awaited; arguments as of ``Client``."""

    def __init__(self, url: str, *, token: str | None = None, http: httpx.AsyncClient | None = None) -> None:
        self._http = http or httpx.AsyncClient(timeout=_TIMEOUT_S)
        self._http.base_url = httpx.URL(url)
        self._http.headers.update(_shown(token))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a call; errors as of ``Client.send``."""
        return call.read(await self._http.request(**call.request))

    async def events(self, sweep_id: str, *, after: int = 0) -> AsyncIterator[ServerEvent]:
        """Events of a sweep until it is finished, as they happen; as ``Client.events``."""
        while True:
            lines = EventLines()
            try:
                async with self._http.stream("GET", **_stream(sweep_id, after)) as response:
                    if response.is_error:
                        await response.aread()
                    checked(response)
                    async for line in response.aiter_lines():
                        for event in lines.add(line):
                            after = event.sequence
                            yield event
                    return
            except httpx.TransportError:
                await asyncio.sleep(_AGAIN_S)

    async def wait(self, sweep_id: str) -> SweepDetail:
        """The sweep once it is finished; errors as for ``events``."""
        async for _ in self.events(sweep_id):
            pass
        return await self.read_sweep(sweep_id)


def _shown(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _stream(sweep_id: str, after: int) -> dict[str, Any]:
    """What httpx opens a stream with, which may be silent for as long as a trial takes."""
    return {
        "url": f"{PREFIX}/sweeps/{sweep_id}/events",
        "headers": {"Last-Event-ID": str(after)},
        "timeout": httpx.Timeout(_TIMEOUT_S, read=None),
    }
