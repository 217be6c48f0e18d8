"""What differs between two environments that trials recorded, what explains a slower step first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotuner.core.runs.measuring import FOREIGN_CPU_SHARE, LINKS

__all__ = ["EnvironmentChange", "environment_changes", "software_of"]

_SOFTWARE = (
    *("container_image", "torch", "driver", "cuda", "nccl", "cudnn", "triton", "transformer-engine", "flash-attn"),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas-cu12"),
    *("nvidia-cublas", "megatron-core", "deepspeed", "python", "kernel", "os", "libc", "trainer", "format"),
)
"""Names of facts that are versions, the likelier to change a step's time first."""

_ORDER = (
    *("device", "cpu", "cpus", "cpu_quota", "backend", LINKS),
    *("clocks_held_by", "sm_clock_mhz", "max_sm_clock_mhz", "power_limit_mw", "memory_clock_mhz", "pcie_width", "ecc"),
    *("cpu_max_mhz", "cpu_governor", "cpu_boost", "cpu_no_turbo", "niceness", FOREIGN_CPU_SHARE),
    "",  # variables of the libraries
    *_SOFTWARE,
    *("smt", "huge_pages", "nodes", "host"),
)
"""Facts by how directly they make a step slower: other hardware, less of it, slower links and clocks, neighbours, a
variable that somebody set, versions, and at last other nodes of the same kind."""

_VARIES = frozenset({"CUDA_VISIBLE_DEVICES", "reports", "launcher"})
"""Facts that differ from trial to trial without anybody's doing: which of equal devices a trial was given."""

_COMES_AND_GOES = frozenset(
    {"clocks_held_by", "container_image", "cpu_quota", LINKS, "nodes", "triton", "transformer-engine", "flash-attn"}
)
"""Facts other than variables that may be there one night and not the next; another that only one of two records has is
one that an older release did not ask for."""

_STEADY_WITHIN = {"sm_clock_mhz": 0.03, "memory_clock_mhz": 0.03}
"""Relative difference of readings that are of one moment; a GPU under load changes its clock by steps of 15 MHz."""

_NEIGHBOURS_WITHIN = 0.05
"""Of the machine's CPU time; what others use less than this apart is the noise of any machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentChange:
    """One fact that is not what it was.

    Attributes:
        name: Of the fact, as trials record it.
        then: What it was; None where it was not recorded.
        now: What it is; None where it is not recorded.
    """

    name: str
    then: str | None
    now: str | None

    def __str__(self) -> str:
        if self.name == LINKS:
            return f"of links, {self.then or 'all healthy'} became {self.now or 'all healthy'}"
        match self.then, self.now:
            case None, now:
                return f"{self.name} is {now} and was not set"
            case then, None:
                return f"{self.name} was {then} and is not set"
            case str(then), str(now) if self.name == "nodes":
                return _nodes_changed(then.split(","), now.split(","))
        return f"{self.name} was {self.then} and is {self.now}"


def _nodes_changed(then: list[str], now: list[str]) -> str:
    """How many are others, and which if few: a list of a hundred hashes tells nobody anything."""
    new = sorted(set(now) - set(then))
    named = f" ({', '.join(new)})" if 0 < len(new) <= 4 else ""
    return f"nodes were {len(then)} and are {len(now)}, of which {len(new)} were not among them{named}"


def environment_changes(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[EnvironmentChange, ...]:
    """Every fact that differs by more than it does by itself, what explains a slower step first.

    Where one of the two recorded nothing at all, nothing is known to differ.
    """
    if not then or not now:
        return ()
    names = sorted(then.keys() | now.keys(), key=_place)
    pairs = ((name, then.get(name), now.get(name)) for name in names)
    return tuple(
        EnvironmentChange(name=name, then=old, now=new) for name, old, new in pairs if _differs(name, old, new)
    )


def software_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The versions among the facts, and the container's image: what a change of software changes."""
    return {name: environment[name] for name in _SOFTWARE if name in environment}


def _place(name: str) -> tuple[int, str]:
    known = name if name in _ORDER else ""
    return _ORDER.index(known), name


def _differs(name: str, then: str | None, now: str | None) -> bool:
    if then == now or name in _VARIES:
        return False
    if then is None or now is None:
        return name.isupper() or name in _COMES_AND_GOES
    if name in _STEADY_WITHIN:
        return abs(float(now) - float(then)) > _STEADY_WITHIN[name] * float(then)
    return name != FOREIGN_CPU_SHARE or abs(float(now) - float(then)) > _NEIGHBOURS_WITHIN
