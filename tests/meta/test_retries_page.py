"""``docs/retries.md`` says what the code does."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_ett.events import RELAUNCH_CAUSES, USER_CAUSES, Cause, Layer
from airflow_ett.launch.adoption import backoff_ns
from airflow_ett.launch.components import train
from airflow_ett.operators import TorchXTrainingOperator
from airflow_ett.operators.ending import WAIT_S
from airflow_ett.operators.stopping import MOVED_DELAY
from airflow_ett.retry import ETTRetryPolicy

PAGE = (Path(__file__).parents[2] / "docs" / "retries.md").read_text()
RELAUNCHES = inspect.signature(TorchXTrainingOperator.__init__).parameters["max_relaunches"].default


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table whose first column is called ``heading``."""
    table = re.search(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None, heading
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table[1].splitlines()]


def relaunch_wait_s(relaunches: int) -> float:
    return sum(backoff_ns(number) for number in range(relaunches)) / 1e9


def retry_wait_s(retries: int) -> float:
    delays = ETTRetryPolicy().delays
    return sum(delays[min(number, len(delays) - 1)] for number in range(retries))


@pytest.mark.parametrize("setting", rows("setting"), ids=lambda row: row[0])
def test_the_sum_is_recomputed(setting: list[str]) -> None:
    text, trainers, waits = setting
    given = {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", text)}
    tries = given["retries"] + 1
    relaunches = given.get("max_relaunches", RELAUNCHES)
    inner = 1
    for layer in ("scheduler", "elastic"):
        if re.search(rf"three .*{layer}", text):
            inner *= 3 + 1
    assert int(trainers) == tries * (relaunches + 1) * inner
    assert waits == f"{tries * relaunch_wait_s(relaunches) + retry_wait_s(tries - 1):g} s"


def test_the_layers_are_told_with_their_limits() -> None:
    table = rows("layer")
    assert {row[-1].strip("`") for row in table} == set(Layer) - {Layer.FIRST}
    cells = {row[0].partition(" (")[0]: row for row in table}
    relaunch = cells["relaunch within the try"]
    assert set(re.findall(r"`(\w+)`", relaunch[2])) == set(RELAUNCH_CAUSES)
    assert f"`max_relaunches`: {RELAUNCHES}" in relaunch[3]
    told = [float(number) for number in re.findall(r"\d+", relaunch[4])]
    longest = backoff_ns(99) / 1e9
    assert told == [*(backoff_ns(number) / 1e9 for number in range(3)), longest]
    assert cells["Airflow retry"][4] == f"{', '.join(f'{d:g}' for d in ETTRetryPolicy().delays)} s"
    assert inspect.signature(train).parameters["max_retries"].default == 0
    assert "`max_retries`: 0" in cells["scheduler restart"][3]


def test_the_options_are_those_of_the_policy() -> None:
    policy = ETTRetryPolicy()
    told = {row[0].strip("`"): row[1].strip("`") for row in rows("option")}
    assert told == {
        "out_of_memory": policy.out_of_memory,
        "timeout": policy.timeout,
        "delays": f"({', '.join(f'{delay:g}' for delay in policy.delays)})",
    }


def test_other_figures_of_the_page() -> None:
    task = TorchXTrainingOperator(task_id="t", component_args=["--m", "m"])
    assert task.retry_delay == timedelta(seconds=1)
    assert "`retry_delay`: 1 s" in PAGE
    assert timedelta(seconds=60) == MOVED_DELAY
    assert "another worker | 60 s" in PAGE
    assert WAIT_S == 10
    assert "ten seconds" in PAGE
    assert {Cause.USER_CANCELLED, Cause.USER_RESTART} == USER_CAUSES
