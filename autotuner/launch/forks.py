"""Ranks forked from a zygote that is kept from trial to trial: milliseconds to start, and nothing shared that lasts."""

from __future__ import annotations

from autotuner.domain.trial import TrialSpec
from autotuner.launch.files import TrialFiles
from autotuner.launch.ranks import Ranks, environment
from autotuner.launch.zygote import Zygote

__all__ = ["Forks"]


class Forks:
    """Starts ranks by a zygote, made for the first trial and again for the first after it has died."""

    def __init__(self) -> None:
        self._zygote: Zygote | None = None

    def start(self, spec: TrialSpec, files: TrialFiles, mark: str) -> Ranks:
        """See ``Starter``."""
        zygote = self._living_zygote()
        return zygote.start(
            "trials.process.task:run_trial", files.directory, spec.layout.world_size, environment(spec, mark)
        )

    def close(self) -> None:
        """End the zygote, if there is one."""
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _living_zygote(self) -> Zygote:
        if self._zygote is not None and not self._zygote.is_alive:
            self.close()
        if self._zygote is None:
            self._zygote = Zygote()
        return self._zygote
