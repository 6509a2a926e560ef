"""The gateway's contract: what holds on every scheduler. See ``harness.py`` for how to join."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.events import JobKey
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.names import app_name
from airflow_ett.launch.status import SchedulerStatus
from tests.launch.contract.harness import WAIT_S, Harness, until

KEY = JobKey("default", "dag", "run", "train")
NAME = app_name(KEY, 1)

MONOLOGUE = """
import sys
from pathlib import Path
from airflow_ett.launch.gateway import Gateway
from {module} import {cls}
backend = {cls}.connect(Path(sys.argv[1]))
gateway = Gateway({{"{scheduler}": lambda session, **_: backend}})
handle = gateway.find("{name}", "{scheduler}", {app_id!r})
print(handle, gateway.status(handle).state, gateway.read_log(handle, 0, {offset}))
gateway.cancel(handle)
"""


class Fault:
    """Replaces the methods by which the gateway asks; the rest of the scheduler stays as it is."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self._harness = harness
        self._patch = monkeypatch

    def asking(self, fault: Callable[[str], None]) -> None:
        """Have ``fault`` called with the app's id (or "") before each question."""
        for method in self._harness.ASK:
            real = getattr(self._harness.backend, method)

            def ask(app_id: str = "", _real: Any = real) -> Any:
                fault(app_id)
                return _real(app_id) if app_id else _real()

            self._patch.setattr(self._harness.backend, method, ask)

    def away(self) -> None:
        """Have every question fail."""

        def refuse(_: str) -> None:
            raise ConnectionError("no route to host")

        self.asking(refuse)

    def lose_answers(self) -> None:
        """Have every submit reach the scheduler, and its answer lost."""
        real = self._harness.backend.schedule

        def schedule(info: Any) -> str:
            real(info)
            raise TimeoutError("read timed out")

        self._patch.setattr(self._harness.backend, "schedule", schedule)


@pytest.fixture
def fault(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Fault:
    return Fault(harness, monkeypatch)


def test_an_app_is_found_by_its_name_and_by_no_other(harness: Harness) -> None:
    others = [app_name(KEY, number) for number in (2, 11, 12)]
    assert harness.find(NAME) is None
    handle = harness.running(NAME)
    assert harness.find(NAME) == handle
    assert [harness.find(name) for name in others] == [None] * 3
    harness.succeed(handle)
    harness.ended(handle)
    assert harness.find(NAME) == handle


def test_r01_a_name_submitted_twice_is_one_app_where_ids_are_names(harness: Harness) -> None:
    handle = harness.running(NAME)
    again = harness.gateway.submit(harness.prepared(), NAME)
    assert (again == handle) is harness.ids_are_names
    assert harness.apps() == 2 - harness.ids_are_names


def test_r02_an_app_whose_handle_was_lost_is_found(harness: Harness, fault: Fault) -> None:
    fault.lose_answers()
    handle = harness.running(NAME)
    assert harness.find(NAME) == handle
    assert harness.apps() == 1


def test_success_is_told_and_stays(harness: Harness) -> None:
    handle = harness.running(NAME)
    assert not harness.gateway.status(handle).terminal
    harness.succeed(handle)
    first = harness.ended(handle)
    assert first.state == "SUCCEEDED"
    assert not first.may_return
    assert [harness.gateway.status(handle) for _ in range(3)] == [first] * 3


def test_failure_is_told_with_its_exit_code_and_stays(harness: Harness) -> None:
    handle = harness.running(NAME)
    harness.fail(handle, 5)
    first = harness.ended(handle)
    assert first.state == "FAILED"
    if harness.tells_exit_codes:
        assert first.replicas[0].exit_code == 5
    assert [harness.gateway.status(handle) for _ in range(3)] == [first] * 3


def test_r12_an_unknown_app_has_no_state_and_nothing_to_read(harness: Harness) -> None:
    handle = f"{harness.scheduler}://ett/nothing"
    gateway = harness.gateway
    assert gateway.status(handle) == SchedulerStatus(state=None)
    assert gateway.read_log(handle) == ("", 0)
    assert gateway.last_lines(handle) == []
    assert gateway.log_location(handle) is None
    assert gateway.page(handle) is None
    gateway.cancel(handle)


def test_a_running_app_is_cancelled_once_and_for_good(harness: Harness) -> None:
    handle = harness.running(NAME)
    harness.gateway.cancel(handle)
    harness.gateway.cancel(handle)
    first = harness.ended(handle)
    assert first.state == "CANCELLED"
    harness.gateway.cancel(handle)
    assert [harness.gateway.status(handle) for _ in range(3)] == [first] * 3


def test_a_cancel_leaves_an_app_that_has_ended_as_it_is(harness: Harness) -> None:
    handle = harness.running(NAME)
    harness.succeed(handle)
    first = harness.ended(handle)
    harness.gateway.cancel(handle)
    assert harness.gateway.status(handle) == first


def test_a_cancel_reaches_an_app_that_has_not_started(harness: Harness) -> None:
    handle = harness.queued(NAME)
    status = harness.gateway.status(handle)
    assert status.state in ("SUBMITTED", "PENDING")
    harness.gateway.cancel(handle)
    assert harness.ended(handle).state == "CANCELLED"


def test_a_log_is_read_in_whole_lines_from_an_offset(harness: Harness) -> None:
    gateway = harness.gateway
    handle = harness.running(NAME)
    harness.say(handle, "first\nsecond\n")
    text, offset = gateway.read_log(handle)
    assert text == "first\nsecond\n"
    assert gateway.read_log(handle, 0, offset) == ("", offset)
    harness.say(handle, "third\n")
    assert gateway.read_log(handle, 0, offset)[0] == "third\n"
    assert gateway.last_lines(handle, count=2) == ["second", "third"]
    assert gateway.read_log(handle, replica=9) == ("", 0)
    assert gateway.last_lines(handle, replica=9) == []


def test_a_line_is_never_read_in_parts_before_the_end(harness: Harness) -> None:
    gateway = harness.gateway
    handle = harness.running(NAME)
    harness.say(handle, "whole\npar")
    text, offset = gateway.read_log(handle)
    assert text == "whole\n"
    harness.say(handle, "tial\nend")
    text, offset = gateway.read_log(handle, 0, offset)
    assert text == "partial\n"
    harness.succeed(handle)
    harness.ended(handle)
    text, offset = gateway.read_log(handle, 0, offset)
    assert text == "end"
    assert gateway.read_log(handle, 0, offset) == ("", offset)


def test_the_place_of_a_log_is_absolute_or_an_address(harness: Harness) -> None:
    handle = harness.running(NAME)
    harness.say(handle, "here\n")
    place = harness.gateway.log_location(handle)
    if place is not None and "://" not in place:
        assert Path(place).is_absolute()
        assert Path(place).read_text() == "here\n"


def test_another_process_sees_reads_and_cancels_the_same(harness: Harness) -> None:
    handle = harness.running(NAME)
    harness.say(handle, "first\n")
    _, offset = harness.gateway.read_log(handle)
    harness.say(handle, "second\n")
    _, end = harness.gateway.read_log(handle, 0, offset)
    code = MONOLOGUE.format(
        module=type(harness).__module__,
        cls=type(harness).__name__,
        scheduler=harness.scheduler,
        name=NAME,
        app_id=harness.app_id(handle),
        offset=offset,
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(harness.folder)],
        cwd=root,
        check=True,
        timeout=60,
        stdout=subprocess.PIPE,
        text=True,
    )
    second = ("second\n", end)
    assert done.stdout.splitlines()[-1] == f"{handle} RUNNING {second}"
    assert harness.ended(handle).state == "CANCELLED"


def test_many_threads_ask_at_once_over_one_connection(harness: Harness) -> None:
    handle = harness.running(NAME)
    harness.say(handle, "line\n")
    made: list[str] = []

    def factory(session: str, **_: object) -> Any:
        made.append(session)
        return harness.backend

    gateway = Gateway({harness.scheduler: factory})
    begin = threading.Barrier(8)

    def ask(_: int) -> tuple[Any, ...]:
        begin.wait(WAIT_S)
        found = gateway.find(NAME, harness.scheduler, harness.app_id(handle))
        return found, gateway.status(handle).state, gateway.read_log(handle)[0]

    with ThreadPoolExecutor(8) as threads:
        answers = set(threads.map(ask, range(8)))
    assert answers == {(handle, "RUNNING", "line\n")}
    assert len(made) == 1


def test_s13_an_answer_that_takes_its_time_holds_up_no_other_app(
    harness: Harness, fault: Fault
) -> None:
    slow, other = harness.running(NAME), harness.running(app_name(KEY, 2))
    asked, answered = threading.Event(), threading.Event()

    def wait(app_id: str) -> None:
        if app_id == harness.app_id(slow):
            asked.set()
            assert answered.wait(WAIT_S)

    fault.asking(wait)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(harness.gateway.status, slow)
        try:
            assert asked.wait(WAIT_S)
            harness.gateway.cancel(other)
            assert harness.ended(other).state == "CANCELLED"
            assert not waiting.done()
        finally:
            answered.set()
        assert waiting.result(WAIT_S).state == "RUNNING"


def test_r14_a_scheduler_that_is_away_is_an_error_that_names_the_app_and_passes(
    harness: Harness, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = harness.running(NAME)
    gateway = harness.gateway
    with monkeypatch.context() as patch:
        Fault(harness, patch).away()
        for ask in (
            gateway.status,
            gateway.cancel,
            gateway.read_log,
            gateway.last_lines,
            gateway.log_location,
        ):
            with pytest.raises(LaunchError, match=f"{handle}: ConnectionError: no route to host"):
                ask(handle)
        with pytest.raises(LaunchError, match=f"find {NAME} at {harness.scheduler}: Connection"):
            gateway.find(NAME, harness.scheduler)
    assert gateway.status(handle).state == "RUNNING"
    until(lambda: gateway.status(handle).state == "RUNNING")
