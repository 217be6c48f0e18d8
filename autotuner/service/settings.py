"""Settings of the service, read from the environment once; the only place that reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from autotuner.core.access import Scope
from autotuner.core.errors import StoreUnavailable
from autotuner.store.options import Ages


class Settings(BaseSettings):
    """Every setting, as ``AUTOTUNER_<NAME>`` in the environment; the defaults need no server and no set-up."""

    model_config = SettingsConfigDict(env_prefix="AUTOTUNER_", frozen=True, extra="forbid")

    database_url: str = Field(default="sqlite:///var/autotuner.db", description="SQLite file or PostgreSQL, as a URL.")
    database_url_file: Path | None = Field(
        default=None, description="File with that URL, which counts then: the secret of a container."
    )
    host: str = Field(default="127.0.0.1", description="Address the service listens on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port the service listens on; 0 takes a free one.")
    login: Literal["none", "tokens", "proxy"] = Field(
        default="none",
        description="How the service asks who calls: not at all, which a loopback address allows; by tokens; or as a "
        "proxy in front of it says.",
    )
    admin_token_file: Path | None = Field(
        default=None, description="File with the text of a token for an admin, stored when the service starts."
    )
    proxy_header: str | None = Field(
        default=None, description="Header by which the proxy names who calls; it must replace what callers send."
    )
    proxy_networks: str = Field(
        default="", description="Networks, with commas, of proxies in front of the service that are believed."
    )
    proxy_scope: Scope = Field(default=Scope.RUN, description="What callers may do that the proxy names.")
    proxy_admins: str = Field(default="", description="Names, with commas, that may do everything where it names them.")
    num_workers: int = Field(
        default=1, ge=0, le=1, description="1: the service runs trials itself; 0: separate workers do."
    )
    lease_s: float = Field(default=15.0, gt=0, description="A worker silent for so long loses its sweep to another.")
    poll_s: float = Field(default=1.0, gt=0, description="How often an idle worker looks for a sweep.")
    starts_retunes: bool = Field(
        default=True, description="Whether a worker starts the runs of retunes that are due; it concludes runs anyway."
    )
    work_dir: Path = Field(
        default=Path("var/trials"), description="Where running trials keep their files, on a disk of this machine."
    )
    launch: Literal["zygote", "torchrun"] = Field(
        default="zygote", description="zygote: trials are forked from a process that has imported torch; torchrun: not."
    )
    trainers: Path | None = Field(
        default=None, description="TOML file of the trainers that sweeps may name; none: sweeps run our own decoder."
    )
    engines: Path | None = Field(
        default=None, description="TOML file of the engines that clusters may name; none: trials run on this machine."
    )
    public_url: str | None = Field(
        default=None, description="Where people reach the service, for links in what webhooks post; none: no links."
    )
    webhook_allow: str = Field(
        default="", description="Networks, with commas, that webhooks may post to beside the public internet."
    )
    keep_steps_days: float = Field(
        default=30.0,
        ge=0,
        description="How long steps and events inside trials outlast their sweep; 0: always.",
    )
    keep_announcements_days: float = Field(
        default=90.0, ge=0, description="How long announcements and their deliveries stay; 0: always."
    )
    keep_plans_days: float = Field(default=90.0, ge=0, description="How long plans stay; 0: always.")
    keep_audit_days: float = Field(default=365.0, ge=0, description="How long the audit log goes back; 0: always.")
    hosts: str = Field(
        default="",
        description="Names that the service is reached by, with commas; addresses, `localhost` and the host of the "
        "public URL are anyway.",
    )
    max_body_bytes: int = Field(default=2_000_000, gt=0, description="Longest body of a request.")
    body_s: float = Field(default=30.0, gt=0, description="What the body of a request may take to arrive.")
    request_s: float = Field(default=60.0, gt=0, description="What a request may take until its answer begins.")
    asides: int = Field(
        default=3,
        ge=0,
        description="Predictions computed at once, each in a process beside the service; 0: in the service itself.",
    )
    aside_s: float = Field(default=30.0, gt=0, description="What one of them may take, and may wait for its turn.")
    aside_memory_bytes: int = Field(default=2_000_000_000, gt=0, description="What one of them may take of memory.")
    requests_per_minute: int = Field(
        default=3000, gt=0, description="Of a caller whose token says nothing else, to one process of the service."
    )
    max_streams: int = Field(default=400, ge=0, description="Streams of events open at once.")
    max_streams_per_caller: int = Field(
        default=50, ge=0, description="Of one caller, where the service asks who calls."
    )
    telemetry: Literal["none", "otlp"] = Field(
        default="none", description="otlp: traces go where OTEL_EXPORTER_OTLP_ENDPOINT says; needs the extra telemetry."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is logged."
    )

    @model_validator(mode="before")
    @classmethod
    def _read_database_url(cls, given: dict[str, Any]) -> dict[str, Any]:
        """With the URL that the file holds, whatever else names one.

        Raises:
            StoreUnavailable: It cannot be read.
        """
        path = given.get("database_url_file")
        if not path:
            return given
        try:
            return {**given, "database_url": Path(path).read_text(encoding="utf-8").strip()}
        except (OSError, UnicodeError) as error:
            why = f"AUTOTUNER_DATABASE_URL_FILE names {path}, which cannot be read ({type(error).__name__})"
            raise StoreUnavailable(why) from None

    @property
    def ages(self) -> Ages:
        """After how many days what is removed."""
        return Ages(
            steps=self.keep_steps_days or None,
            announcements=self.keep_announcements_days or None,
            plans=self.keep_plans_days or None,
            audit=self.keep_audit_days or None,
        )
