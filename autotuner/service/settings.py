"""Settings of the service, read once from the environment; no other module reads the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from autotuner.core.access import Scope
from autotuner.core.errors import StoreUnavailable
from autotuner.store.options import Ages


class Settings(BaseSettings):
    """All settings of the service, read from environment variables ``AUTOTUNER_<NAME>``.

    Each setting has a default value, so the service also starts without any of these variables.
    """

    model_config = SettingsConfigDict(env_prefix="AUTOTUNER_", frozen=True, extra="forbid")

    database_url: str = Field(
        default="sqlite:///var/autotuner.db",
        description="URL of the database: an SQLite file or PostgreSQL.",
    )
    database_url_file: Path | None = Field(
        default=None,
        description="File that holds the URL of the database. It replaces AUTOTUNER_DATABASE_URL, so that a "
        "container can mount a secret.",
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address on which the service listens.",
    )
    port: int = Field(
        default=8000,
        ge=0,
        le=65535,
        description="Port on which the service listens; 0 takes a free one.",
    )
    login: Literal["none", "tokens", "proxy"] = Field(
        default="none",
        description="How the service identifies callers. none: it needs no login, which is refused on addresses that "
        "other machines can reach. tokens: callers send a token. proxy: a proxy in front of the service "
        "names the caller in a header.",
    )
    admin_token_file: Path | None = Field(
        default=None,
        description="File with the text of an admin token. The service stores the token when it starts.",
    )
    proxy_header: str | None = Field(
        default=None,
        description="Header in which the proxy names the caller. The proxy must replace a header that callers send "
        "themselves.",
    )
    proxy_networks: str = Field(
        default="",
        description="Networks of the proxies whose header the service trusts, separated by commas.",
    )
    proxy_scope: Scope = Field(
        default=Scope.RUN,
        description="Scope of the callers that the proxy names.",
    )
    proxy_admins: str = Field(
        default="",
        description="Names of the callers that are admins, separated by commas; only if a proxy names the callers.",
    )
    num_workers: int = Field(
        default=1,
        ge=0,
        le=1,
        description="1: the service runs trials itself. 0: separate workers run them.",
    )
    lease_s: float = Field(
        default=15.0,
        gt=0,
        description="If a worker sends no heartbeat for this time, another worker takes over its sweep.",
    )
    poll_s: float = Field(
        default=1.0,
        gt=0,
        description="Time between two looks of an idle worker for a queued sweep.",
    )
    starts_retunes: bool = Field(
        default=True,
        description="True: a worker starts the runs of retunes that are due. False: it only completes runs that have "
        "started.",
    )
    work_dir: Path = Field(
        default=Path("var/trials"),
        description="Folder for the files of running trials, on a disk of this machine.",
    )
    launch: Literal["fork", "torchrun"] = Field(
        default="fork",
        description="How ranks start: fork forks them from a process that has imported torch; torchrun starts each "
        "one anew.",
    )
    trainers: Path | None = Field(
        default=None,
        description="TOML file of the trainers that sweeps may name. Without it, sweeps train the built-in decoder.",
    )
    engines: Path | None = Field(
        default=None,
        description="TOML file of the engines that clusters may name. Without it trials run on this machine.",
    )
    site_dir: Path = Field(
        default=Path("site"),
        description="Folder of the documentation site that `make docs` builds. The service shows it under /docs.",
    )
    public_url: str | None = Field(
        default=None,
        description="Address at which people reach the service, for links in the posts of webhooks. Without it posts "
        "have no links.",
    )
    webhook_allow: str = Field(
        default="",
        description="Networks, separated by commas, to which webhooks may post besides the public internet.",
    )
    keep_steps_days: float = Field(
        default=30.0,
        ge=0,
        description="Steps and events of trials are deleted this long after the end of their sweep; 0: never.",
    )
    keep_announcements_days: float = Field(
        default=90.0,
        ge=0,
        description="Announcements and their deliveries are deleted after this time; 0: never.",
    )
    keep_plans_days: float = Field(
        default=90.0,
        ge=0,
        description="Plans are deleted after this time; 0: never.",
    )
    keep_audit_days: float = Field(
        default=365.0,
        ge=0,
        description="Entries of the audit log are deleted after this time; 0: never.",
    )
    hosts: str = Field(
        default="",
        description="Host names by which the service is reached, separated by commas. IP addresses, `localhost` and "
        "the host of the public URL are always accepted.",
    )
    max_body_bytes: int = Field(
        default=2_000_000,
        gt=0,
        description="Greatest size of a request body.",
    )
    body_s: float = Field(
        default=30.0,
        gt=0,
        description="Longest time until the body of a request has arrived.",
    )
    request_s: float = Field(
        default=60.0,
        gt=0,
        description="Longest time until the answer to a request begins.",
    )
    compute_processes: int = Field(
        default=3,
        ge=0,
        description="Number of predictions that are computed at once, each in a subprocess of the service; 0: in the "
        "service itself.",
    )
    aside_s: float = Field(
        default=30.0,
        gt=0,
        description="Longest time that such a prediction may take, and may wait for its turn.",
    )
    aside_memory_bytes: int = Field(
        default=2_000_000_000,
        gt=0,
        description="Greatest memory that such a prediction may take.",
    )
    requests_per_minute: int = Field(
        default=3000,
        gt=0,
        description="Requests that a caller may send in a minute to one process of the service, unless the token "
        "says another number.",
    )
    max_streams: int = Field(
        default=400,
        ge=0,
        description="Number of event streams that may be open at once.",
    )
    max_streams_per_caller: int = Field(
        default=50,
        ge=0,
        description="Number of event streams that one caller may have open at once, if the service asks who calls.",
    )
    telemetry: Literal["none", "otlp"] = Field(
        default="none",
        description="otlp sends traces to OTEL_EXPORTER_OTLP_ENDPOINT. It needs the extra telemetry.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Lowest level of messages that are logged.",
    )

    @property
    def database_address(self) -> str:
        """The URL of the database without its user and password, for messages."""
        return self.database_url.rpartition("@")[2]

    @model_validator(mode="before")
    @classmethod
    def _read_database_url(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Read the database URL from the file, which has priority over all other sources.

        Raises:
            StoreUnavailable: The file cannot be read.
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
        """Return the retention periods in days. A kind of record with None is kept for ever."""
        return Ages(
            steps=self.keep_steps_days or None,
            announcements=self.keep_announcements_days or None,
            plans=self.keep_plans_days or None,
            audit=self.keep_audit_days or None,
        )
