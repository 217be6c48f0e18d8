"""How long an example takes says nothing here, and on a busy machine means nothing."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("properties", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("properties")
