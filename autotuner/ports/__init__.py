"""What the core needs from the world; each contract is a docstring, and tests/contracts holds every adapter to it."""

from autotuner.ports.access import AccessStore
from autotuner.ports.accounts import AccountStore
from autotuner.ports.announcements import AnnouncementStore
from autotuner.ports.clock import Clock
from autotuner.ports.control import ControlStore
from autotuner.ports.gauges import GaugeStore
from autotuner.ports.history import HistoryStore
from autotuner.ports.launcher import Launcher, TrialWatcher
from autotuner.ports.mfu_gates import MfuGateStore
from autotuner.ports.names import Names
from autotuner.ports.optimizer_studies import OptimizerStudyStore
from autotuner.ports.page import COUNTED_BEHIND, Page
from autotuner.ports.rankings import RankedTime, TrialFilter, TrialsVersion
from autotuner.ports.retention import RetentionStore
from autotuner.ports.retunes import RetuneStore
from autotuner.ports.store import Store
from autotuner.ports.sweep_lists import ALL_SWEEPS, NEWEST_FIRST, SweepColumn, SweepFilter, SweepOrder
from autotuner.ports.troubles import TroubleStore
from autotuner.ports.workers import WorkerStore

__all__ = [
    "ALL_SWEEPS",
    "COUNTED_BEHIND",
    "NEWEST_FIRST",
    "AccessStore",
    "AccountStore",
    "AnnouncementStore",
    "Clock",
    "ControlStore",
    "GaugeStore",
    "HistoryStore",
    "Launcher",
    "MfuGateStore",
    "Names",
    "OptimizerStudyStore",
    "Page",
    "RankedTime",
    "RetentionStore",
    "RetuneStore",
    "Store",
    "SweepColumn",
    "SweepFilter",
    "SweepOrder",
    "TrialFilter",
    "TrialWatcher",
    "TrialsVersion",
    "TroubleStore",
    "WorkerStore",
]
