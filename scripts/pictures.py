"""Take the pictures of the README from the demo's database: ``make demo pictures``."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
from playwright.sync_api import sync_playwright

_DATABASE = "sqlite:///var/demo.db"
_FOLDER = Path("docs/images")
_SIZE = {"width": 1280, "height": 860}


def main() -> None:
    """Start a service on the demo's database, and save a picture of its last sweep's page in each colour scheme."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = {"AUTOTUNER_DATABASE_URL": _DATABASE, "AUTOTUNER_NUM_WORKERS": "0", "AUTOTUNER_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "autotuner.cli", "serve", "--port", str(port)]
    with subprocess.Popen(command, env={**os.environ, **settings}) as service:
        try:
            _take(url, _last_sweep(url, service))
        finally:
            service.terminate()


def _last_sweep(url: str, service: subprocess.Popen[bytes]) -> str:
    while service.poll() is None:
        try:
            sweeps = httpx.get(f"{url}/api/v1/sweeps").json()["items"]
        except httpx.ConnectError:
            time.sleep(0.2)
            continue
        if not sweeps:
            sys.exit(f"{_DATABASE} holds no sweep: run `make demo` first")
        return str(sweeps[0]["id"])
    sys.exit("the service ended")


def _take(url: str, sweep: str) -> None:
    _FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=_SIZE, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(f"{url}/sweeps/{sweep}")
            page.wait_for_load_state("networkidle")
            page.screenshot(path=_FOLDER / f"sweep-{scheme}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
