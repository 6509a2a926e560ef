"""SIGTERM's grace: what the user asks for reaches every layer, and who grants less is told of."""

from __future__ import annotations

import pytest
from torchx.specs import AppDef
from torchx.specs.overlays import get_overlay

from airflow_ett.launch import grace
from airflow_ett.launch.components import train
from airflow_ett.launch.gateway import Prepared
from airflow_ett.launch.preparation import build_app


def pod_grace(app: AppDef) -> int:
    overlay = get_overlay(app.roles[0], "kubernetes", "V1Pod")
    seconds: int = overlay["spec"]["terminationGracePeriodSeconds"]
    return seconds


def test_a_pod_outlives_the_agent_that_outlives_its_trainers() -> None:
    app = train(script="t.py", grace_s=120)
    assert grace.asked(app) == 120
    assert pod_grace(app) > 120
    assert pod_grace(train(script="t.py")) > 30


def test_no_time_below_zero_can_be_given() -> None:
    with pytest.raises(ValueError, match="grace_s: -1"):
        train(script="t.py", grace_s=-1)


def test_a_component_that_asks_for_nothing_gets_torchruns() -> None:
    app = build_app("utils.sh", ["true"])
    assert grace.asked(app) is None
    assert Prepared("slurm", app, {}, None).grace_s == grace.TORCHRUN_S
    assert grace.shortfall(app, "slurm", {}) is None


@pytest.mark.parametrize(
    ("scheduler", "grace_s", "granted"),
    [
        ("slurm", 120, "30 s"),
        ("slurm", 31, "30 s"),
        ("slurm", 30, None),
        ("local_docker", 600, None),
        ("kubernetes", 600, None),
        ("local_detached", 600, None),
        ("a plugin's", 600, None),
    ],
)
def test_r26_a_layer_that_grants_less_is_named(
    scheduler: str, grace_s: int, granted: str | None
) -> None:
    text = grace.shortfall(train(script="t.py", grace_s=grace_s), scheduler, {})
    if granted is None:
        assert text is None
    else:
        assert text is not None
        for part in (f"{grace_s} s", granted, scheduler, "grace_s"):
            assert part in text


@pytest.mark.parametrize(("cfg_s", "warned"), [(None, False), (30, False), (120, True)])
def test_r26_a_grace_that_only_the_scheduler_was_told_of_does_not_reach_the_trainer(
    cfg_s: int | None, warned: bool
) -> None:
    text = grace.shortfall(train(script="t.py"), "local_detached", {"grace_s": cfg_s})
    assert (text is not None) is warned
    assert not warned or ("--grace_s in component_args" in str(text) and "120 s" in str(text))
