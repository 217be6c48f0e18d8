"""The software of this machine that trials would meet, told without starting one: versions, driver, kernel."""

from __future__ import annotations

from autotuner.host.machine import host_hash, software_facts


def software_of_this_machine() -> dict[str, str]:
    """Facts under the names that trials record them by; what is not there is left out.

    Only what a change of can be seen without torch: it is asked every few seconds, by a service that never imports it.
    A registered trainer has a Python of its own, of which these versions say nothing (``system_facts`` does).
    """
    return {"host": host_hash(), **software_facts()}
