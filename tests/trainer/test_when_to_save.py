"""When a checkpointer saves: by its interval, one at a time, with a word where uploads are slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.errors import ConfigurationError
from airflow_ett.trainer.autointerval import FIRST_S
from airflow_ett.trainer.checkpointer import Checkpointer
from airflow_ett.trainer.committing import Committer
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.place import read_place
from airflow_ett.trainer.stepclock import StepClock

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


class Clock:
    """A monotonic clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> int:
        return int(self.now_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic_ns", made)
    return made


@pytest.fixture
def saver(request: pytest.FixtureRequest, job: Any, clock: Clock) -> Iterator[Checkpointer]:
    """A checkpointer that saves every ``request.param`` seconds, in a loop at its first step."""
    place = read_place(job.environ())
    assert place is not None
    journal = Journal(None)
    steps = StepClock(journal, (1, 0, 0, 0, 1), offset=0, on_edge=lambda: 0)
    steps.cursor = 1
    made = Checkpointer(
        place,
        journal,
        Phases(journal, steps, 0),
        steps,
        {"model": torch.nn.Linear(2, 2)},
        request.param,
    )
    made.at_edge(stop=False)
    yield made
    made.join()
    made.close()


def cursors(job: Any) -> list[int]:
    return [c.cursor for c in checkpoints.list_checkpoints(job.context.checkpoints)]


@pytest.mark.parametrize("saver", [900.0], indirect=True)
def test_a_save_is_due_an_interval_after_the_last(
    saver: Checkpointer, job: Any, clock: Clock
) -> None:
    clock.now_s += 899
    assert saver.at_edge(stop=False) == 1900 * 10**9
    assert cursors(job) == []
    clock.now_s += 1
    saver.at_edge(stop=False)
    saver.join()
    assert cursors(job) == [1]
    assert saver.at_edge(stop=False) == 2800 * 10**9
    clock.now_s += 900
    saver.at_edge(stop=False)  # not a step further
    assert cursors(job) == [1]


@pytest.mark.parametrize("saver", ["auto"], indirect=True)
def test_the_first_save_shows_how_often_to_save(
    saver: Checkpointer, job: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = saver._shards.take

    def slow(*arguments: Any, **options: Any) -> Any:
        clock.now_s += 2.0
        return take(*arguments, **options)

    monkeypatch.setattr(saver._shards, "take", slow)
    clock.now_s += FIRST_S
    saver.at_edge(stop=False)
    saver.join()
    assert cursors(job) == [1]
    due_s = saver.at_edge(stop=False) / 1e9 - clock.now_s
    assert due_s == pytest.approx((2 * 2.0 * 86400) ** 0.5)


@pytest.mark.parametrize("saver", [100.0], indirect=True)
def test_a_due_save_waits_for_the_upload_in_flight_and_the_training_does_not(
    saver: Checkpointer,
    job: Any,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    written = threading.Event()
    commit = Committer.commit

    def slow(self: Committer, path: Path, *arguments: Any, **options: Any) -> None:
        assert written.wait(30)
        commit(self, path, *arguments, **options)

    monkeypatch.setattr(Committer, "commit", slow)
    clock.now_s += 100
    saver.at_edge(stop=False)
    saver._clock.cursor = 2
    for late_s in (100, 99, 2, 50):
        clock.now_s += late_s
        assert saver.at_edge(stop=False) == 1 << 62
    assert caplog.text.count("The next checkpoint waits for the last") == 1
    assert "cursor 1 has been written for 201 s" in caplog.text
    written.set()
    saver.join()
    assert cursors(job) == [1]
    saver.at_edge(stop=False)
    saver.join()
    assert cursors(job) == [1, 2]


@pytest.mark.parametrize(
    ("parameter", "options"),
    [("every_s", ("daily", {})), ("on_failed_save", (None, {"on_failed_save": "ignore"}))],
)
def test_another_word_names_the_parameter(job: Any, parameter: str, options: Any) -> None:
    every_s, more = options
    place = read_place(job.environ())
    assert place is not None
    journal = Journal(None)
    steps = StepClock(journal, (1, 0, 0, 0, 1), offset=0, on_edge=lambda: 0)
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigurationError, match=parameter):
        Checkpointer(
            place, journal, Phases(journal, steps, 0), steps, {"model": model}, every_s, **more
        )
