"""The links of a try: pushed at once, kept up to date, never in the training's way."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.log import mask_secret
from airflow.sdk.types import TaskInstanceKey

from airflow_ett.launch.places import Places
from airflow_ett.links import LINKS, LinkBoard, board

LOCAL = Places("/runs/j", "local_detached://ett/app-1", None, "/apps/app-1/log", "/runs/j/c/640")
REMOTE = Places("/runs/j", "x://ett/app-1", "https://c/app-1", "https://c/app-1?log=1")
RUN = "manual__2026-01-01T00%3A00%3A00%2B00%3A00%2Fa%3Fb%23c"
TASK = f"dags/ranker/runs/{RUN}/tasks/group.train"
ETT = f"{TASK}/plugin/ett-task"
TAB = f"{TASK}/xcom?key_pattern="


def links(xcoms: dict[str, Any]) -> dict[str, str]:
    return {link.name: xcoms[link.xcom_key] for link in LINKS if link.xcom_key in xcoms}


def places(xcoms: dict[str, Any]) -> dict[str, str]:
    return {key: text for key, text in xcoms.items() if not key.startswith("_link")}


def test_a_scheduler_without_pages_leaves_one_link_out(xcoms: Any, key: Any) -> None:
    LinkBoard(key)(lambda: LOCAL, now=True)
    assert links(xcoms) == {
        "ETT%": ETT,
        "Training logs": f"{TAB}logs",
        "Checkpoint": f"{TAB}checkpoint",
    }
    assert places(xcoms) == {
        "run_dir": "/runs/j",
        "handle": "local_detached://ett/app-1",
        "logs": "/apps/app-1/log",
        "checkpoint": "/runs/j/c/640",
    }


def test_a_scheduler_with_pages_is_linked_before_the_first_checkpoint(xcoms: Any, key: Any) -> None:
    LinkBoard(key)(lambda: REMOTE, now=True)
    assert links(xcoms) == {
        "Training job": "https://c/app-1",
        "ETT%": ETT,
        "Training logs": "https://c/app-1?log=1",
    }


@pytest.mark.usefixtures("_fresh_masker")
def test_what_is_pushed_holds_no_secret(xcoms: Any, key: Any) -> None:
    mask_secret("hunter2hunter2")
    secret = "https://me:hunter2hunter2@c/hunter2hunter2?token=hunter2hunter2"
    LinkBoard(key)(lambda: Places(secret, secret, secret, secret, secret), now=True)
    assert "hunter2" not in str(xcoms)
    assert links(xcoms) == {
        "Training job": f"{TAB}page",
        "ETT%": ETT,
        "Training logs": f"{TAB}logs",
        "Checkpoint": f"{TAB}checkpoint",
    }


def test_it_looks_when_due_and_pushes_what_has_changed(
    xcoms: Any, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(board.time, "monotonic", lambda: clock[0])
    show = LinkBoard(key, every_s=15)
    show(lambda: LOCAL)
    xcoms.clear()
    later = replace(LOCAL, checkpoint="/runs/j/c/1280")
    clock[0] += 14
    show(lambda: later)
    assert xcoms == {}
    clock[0] += 1
    show(lambda: later)
    assert xcoms == {"checkpoint": "/runs/j/c/1280"}
    xcoms.clear()
    relaunched = replace(later, handle="local_detached://ett/app-2", logs=None)
    show(lambda: relaunched, now=True)
    assert xcoms == {"handle": "local_detached://ett/app-2"}


def test_a_push_that_fails_costs_one_warning_and_is_tried_again(
    key: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pushed: list[str] = []

    def away(key: str, value: Any, **_: Any) -> None:
        pushed.append(key)
        raise ConnectionError("no API server")

    monkeypatch.setattr(BaseXCom, "set", away)
    show = LinkBoard(key)
    with caplog.at_level(logging.WARNING):
        show(lambda: LOCAL, now=True)
        show(lambda: LOCAL, now=True)
    assert pushed == ["run_dir", "run_dir"]
    assert [record.message.count("no API server") for record in caplog.records] == [1]


def test_an_api_server_that_does_not_answer_holds_up_few_looks(
    key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, pushed = [1000.0], list[float]()
    monkeypatch.setattr(board.time, "monotonic", lambda: clock[0])

    def slow(*_: Any, **__: Any) -> None:
        pushed.append(clock[0])
        clock[0] += 45
        raise ConnectionError("no API server")

    monkeypatch.setattr(BaseXCom, "set", slow)
    show = LinkBoard(key, every_s=15)
    while clock[0] < 2000:
        show(lambda: LOCAL)
        clock[0] += 5
    assert pushed == [1000, 1495, 1990]


@pytest.mark.parametrize("found", [LOCAL, REMOTE])
def test_r20_what_airflow_stores_at_the_end_of_a_task_is_the_same(
    xcoms: Any, key: Any, found: Places
) -> None:
    LinkBoard(key)(lambda: found, now=True)
    ti_key = TaskInstanceKey(key["dag_id"], key["task_id"], key["run_id"], 1, -1)
    again = {link.name: link.get_link(None, ti_key=ti_key) for link in LINKS}
    assert {name: address for name, address in again.items() if address} == links(xcoms)


def test_a_task_that_failed_before_its_submit_has_its_page(xcoms: Any) -> None:
    ti_key = TaskInstanceKey("ranker", "train", "r", 1, -1)
    shown = {link.name: link.get_link(None, ti_key=ti_key) for link in LINKS}
    assert shown == {
        "Training job": "",
        "ETT%": "dags/ranker/runs/r/tasks/train/plugin/ett-task",
        "Training logs": "",
        "Checkpoint": "",
    }
