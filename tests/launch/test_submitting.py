"""A submit whose answer is lost is neither forgotten nor made twice."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.errors import Fenced, LaunchError
from airflow_ett.launch.watcher import Watcher

AWAY = LaunchError("cannot find the app: no route to host")


@pytest.mark.parametrize("reached", [True, False], ids=["the app is there", "it never came"])
def test_r02_s02_an_answer_lost_while_the_scheduler_is_away(
    bench: Any, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    """Field reports R02 and S02: the later submit bears the same name."""
    names: list[str] = []

    def lose(prepared: Any, name: str) -> str:
        names.append(name)
        if reached:
            bench.gateway.submitted.append(name)
            bench.gateway.states[name] = "RUNNING"
        raise AWAY

    def away(*_: Any) -> None:
        raise AWAY

    with monkeypatch.context() as broken:
        broken.setattr(bench.gateway, "submit", lose)
        broken.setattr(bench.gateway, "find", away)
        with pytest.raises(LaunchError):
            bench.watch()
    assert bench.events("attempt_ended") == []
    later = bench.watch(try_number=2)
    assert bench.gateway.submitted == names
    bench.ends("SUCCEEDED")
    assert later.poll().cause is None


def test_a_refusal_ends_the_attempt(bench: Any) -> None:
    bench.gateway.refuse = True
    with pytest.raises(LaunchError):
        bench.watch()
    (end,) = bench.events("attempt_ended")
    assert end.data["cause"] == "launch"


def overtaken(bench: Any, monkeypatch: pytest.MonkeyPatch, meanwhile: Any) -> None:
    """Submit; call ``meanwhile`` when the scheduler has the app and has not answered yet."""
    real = bench.gateway.submit

    def slowly(prepared: Any, name: str) -> str:
        handle = real(prepared, name)
        monkeypatch.setattr(bench.gateway, "submit", real)
        meanwhile()
        return handle

    monkeypatch.setattr(bench.gateway, "submit", slowly)
    with pytest.raises(Fenced):
        bench.watch()


def test_an_app_that_came_too_late_for_a_cancel_is_cancelled(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def user() -> None:
        with monkeypatch.context() as unseen:
            unseen.setattr(bench.gateway, "find", lambda *_: None)
            job = bench.open()
            claim = job.log.claim(try_number=1, max_tries=2, mode="trigger")
            killer = Watcher(job, claim, bench.request, bench.gateway, now_ns=lambda: bench.now_ns)
            killer.recall()
            killer.user_cancel(wait_s=0, sleep=bench.tick)

    overtaken(bench, monkeypatch, user)
    assert bench.gateway.cancelled == [bench.app()]
    assert bench.job_state() is None  # left to the reaper


def test_an_app_whose_answer_came_late_belongs_to_whoever_adopts_it(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    overtaken(bench, monkeypatch, lambda: bench.watch(mode="trigger"))
    assert bench.gateway.cancelled == []
    assert len(bench.gateway.submitted) == 1
    bench.ends("SUCCEEDED")
    assert bench.watch(mode="trigger").poll().cause is None
