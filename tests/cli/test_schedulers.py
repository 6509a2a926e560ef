"""``airflow-ett schedulers``, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import airflow_ett.launch.survey as module
from airflow_ett.cli import main
from tests.launch.contract.scripted import DetailedScripted, Scripted
from tests.launch.plugin import install

Output = pytest.CaptureFixture[str]


class Chatty(Scripted):
    """Prints, and does not answer."""

    def list(self, cfg: Any = None) -> list[Any]:
        print("connecting")
        raise OSError("no route")


def lacking(session_name: str, **_: object) -> Any:
    raise ModuleNotFoundError("No module named 'acme_client'", name="acme_client")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mapping[str, Any]:
    """Three schedulers: one that answers, one that does not, one that lacks a package."""
    good, chatty = DetailedScripted(tmp_path), Chatty(tmp_path)
    found = {"good": lambda *_, **__: good, "chatty": lambda *_, **__: chatty, "poor": lacking}
    monkeypatch.setattr(module, "scheduler_factories", lambda: found)
    return found


def test_a_table_and_on_standard_error_why_one_does_not_answer(capsys: Output) -> None:
    assert main(["schedulers"]) == 0
    told = capsys.readouterr()
    head, *rows = told.out.splitlines()
    assert head.split("  ")[0] == "Scheduler"
    assert head.endswith("Answers")
    assert [row.split() for row in rows] == [
        ["chatty", "tests", "unknown", "unknown", "no", "no", "TorchX", "no", "no"],
        ["good", "tests", "yes", "yes", "no", "no", "direct", "no", "yes"],
        ["poor", *["unknown"] * 7, "no"],
    ]
    assert "airflow-ett: chatty: could not ask chatty: OSError: no route\n" in told.err
    assert "airflow-ett: poor: poor needs a package that is missing: No module named" in told.err


def test_json_is_nothing_but_json(show: Callable[..., Any]) -> None:
    chatty, good, poor = show("schedulers")
    assert good == {
        "scheduler": "good",
        "package": "tests",
        "exit_codes": True,
        "requeues": True,
        "avoids_hosts": False,
        "workspaces": False,
        "output": "direct",
        "ids_are_names": False,
        "answers": True,
        "problem": "",
    }
    assert (chatty["exit_codes"], chatty["answers"]) == (None, False)
    assert set(poor) == set(good)
    assert {value for name, value in poor.items() if name not in ("scheduler", "problem")} == {
        None,
        False,
    }


def test_a_plugin_is_listed_by_its_own_name(tmp_path: Path, repo: Path) -> None:
    install(tmp_path / "site")
    (tmp_path / "acme").mkdir()
    paths = os.pathsep.join([str(tmp_path / "site"), str(repo)])
    done = subprocess.run(
        [sys.executable, "-m", "airflow_ett.cli", "schedulers", "--json"],
        env=os.environ | {"PYTHONPATH": paths, "ACME_FOLDER": str(tmp_path / "acme")},
        capture_output=True,
        text=True,
        check=True,
    )
    found = {row["scheduler"]: row for row in json.loads(done.stdout)}
    assert {"acme", "kubernetes", "local_detached", "local_docker", "slurm"} <= set(found)
    acme = found["acme"]
    assert (acme["package"], acme["answers"], acme["exit_codes"]) == ("acme_torchx", True, None)
