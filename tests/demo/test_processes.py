"""Ending everything that a stack started, however it hides."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_ett.demo.processes import MARKER, end, of_session, of_stack

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("up", flush=True)
        time.sleep(60)
time.sleep(60)
"""

Start = Callable[[Path, str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[subprocess.Popen[str]] = []

    def begin(home: Path, code: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, MARKER: str(home)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        return child

    yield begin
    for child in children:
        child.kill()
        child.wait()


def test_detached_grandchildren_that_ignore_sigterm_are_ended(tmp_path: Path, start: Start) -> None:
    start(tmp_path, STUBBORN)
    assert len(of_stack(tmp_path)) == 3
    assert end(lambda: of_stack(tmp_path), 0.2) == set()
    assert of_stack(tmp_path) == set()


def test_another_stack_is_left_alone(tmp_path: Path, start: Start) -> None:
    other = start(tmp_path / "other", "import time; print('up', flush=True); time.sleep(60)")
    start(tmp_path, "import time; print('up', flush=True); time.sleep(60)")
    end(lambda: of_stack(tmp_path), 1)
    assert other.poll() is None
    assert {process.pid for process in of_stack(tmp_path / "other")} == {other.pid}


def test_sigterm_gives_a_process_the_time_it_needs(tmp_path: Path, start: Start) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(7)))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    child = start(tmp_path, code)
    assert end(lambda: of_stack(tmp_path), 5) == set()
    assert child.wait() == 7


def test_a_session_is_its_leader_and_what_stayed_in_it(tmp_path: Path, start: Start) -> None:
    child = start(tmp_path, STUBBORN)
    assert {process.pid for process in of_session(child.pid)} == {child.pid}
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert of_session(child.pid) == set()
    end(lambda: of_stack(tmp_path), 0)
