"""Which schedulers are installed, what they support, and whether they answer."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from torchx.specs import AppState

from airflow_ett.launch.preparation import scheduler_factories
from airflow_ett.launch.survey import Surveyed, survey
from tests.launch.contract.scripted import Scripted


class Away(Scripted):
    """Cannot be asked."""

    def list(self, cfg: Any = None) -> list[Any]:
        raise OSError("no route\nto host")


def lacking(session_name: str, **_: object) -> Any:
    raise ModuleNotFoundError("No module named 'acme_client'", name="acme_client")


def test_each_is_told_with_what_is_known_of_it(tmp_path: Path) -> None:
    away, there = Away(tmp_path), Scripted(tmp_path)
    found = survey(
        {"there": lambda _, **__: there, "away": lambda _, **__: away, "lacking": lacking}
    )
    assert [(one.name, one.answers, one.supports is not None) for one in found] == [
        ("away", False, True),
        ("lacking", False, False),
        ("there", True, True),
    ]
    assert [one.problem for one in found] == [
        "could not ask away: OSError: no route to host",
        "lacking needs a package that is missing: No module named 'acme_client'",
        "",
    ]


def test_one_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    released = threading.Event()

    def hangs(session_name: str, **_: object) -> Any:
        released.wait(60)

    class Mum(Scripted):
        def list(self, cfg: Any = None) -> list[Any]:
            released.wait(60)
            return []

    scheduler, mum = Scripted(tmp_path), Mum(tmp_path)
    begun_s = time.monotonic()
    factories = {"a": hangs, "m": lambda _, **__: mum, "z": lambda _, **__: scheduler}
    first, second, last = survey(factories, timeout_s=0.3)
    assert time.monotonic() - begun_s < 5
    released.set()
    late = "it has not answered within 0.3 s"
    assert first == Surveyed("a", problem=late)
    assert (second.answers, second.problem) == (None, late)
    assert second.supports is not None
    assert last.answers


def test_one_that_hangs_does_not_keep_the_process() -> None:
    code = (
        "import time\n"
        "from airflow_ett.launch.survey import survey\n"
        "print(survey({'a': lambda *_, **__: time.sleep(600)}, timeout_s=0.2)[0].problem)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "it has not answered within 0.2 s\n"


@pytest.mark.filterwarnings("ignore:failed to load kube config", "ignore:URLs without a scheme")
def test_all_that_are_installed_are_told_and_nothing_is_submitted(monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", "")
    found = survey(timeout_s=30)
    assert [one.name for one in found] == sorted(scheduler_factories())
    slurm = next(one for one in found if one.name == "slurm")
    assert (slurm.answers, "there is no squeue" in slurm.problem) == (False, True)


def test_a_list_of_apps_is_answer_enough(tmp_path: Path) -> None:
    scheduler = Scripted(tmp_path)
    scheduler.lives = [[AppState.RUNNING]]
    assert survey({"s": lambda _, **__: scheduler})[0].answers
    assert scheduler.asked == 0


@pytest.mark.slurm
@pytest.mark.usefixtures("slurm")
def test_a_real_slurm_answers() -> None:
    (found,) = survey({"slurm": scheduler_factories()["slurm"]})
    assert (found.answers, found.problem) == (True, "")
