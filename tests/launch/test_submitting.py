"""A submit whose answer is lost is neither forgotten nor made twice."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.errors import LaunchError

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
