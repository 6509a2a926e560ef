"""A run directory, and commands that print JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.cli import main
from airflow_ett.events import RunDir


@pytest.fixture
def run(tmp_path: Path, write_job: Callable[..., RunDir]) -> RunDir:
    """The run directory of a training that failed once: 40 s of 90 s were effective."""
    return write_job(tmp_path / "runs")


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command with ``--json`` and return what it printed."""

    def command(*arguments: str | Path) -> Any:
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return command


@pytest.fixture(scope="session")
def lines() -> Callable[[RunDir], list[bytes]]:
    """Return all lines of a run directory's logs."""
    return lambda run: [
        line for log in run.logs() for line in log.read_bytes().splitlines(keepends=True)
    ]
