"""The supervisor: real processes that end well, badly, by signals, and not at all."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest


def test_exit_code_of_every_replica_is_kept_and_times_are_in_order(local: Any) -> None:
    local.submit("app", "exit 0", "exit 0")
    status = local.ended("app")
    assert (status.state, status.raw) == ("SUCCEEDED", "succeeded")
    assert [(r.exit_code, r.signal) for r in status.replicas] == [(0, None), (0, None)]
    assert 0 < status.allocated_ns <= status.started_ns <= status.ended_ns <= time.time_ns()
    for replica in local.recorded("app").replicas:
        assert status.started_ns <= replica.begin_ns <= replica.end_ns <= status.ended_ns


def test_a_failing_replica_stops_the_others(local: Any) -> None:
    local.submit("app", "sleep 60", "exit 3", "sleep 60")
    status = local.ended("app")
    assert (status.state, status.raw) == ("FAILED", "failed")
    assert status.message == "replica r1/0 ended with exit code 3"
    assert [(r.state, r.exit_code, r.signal) for r in status.replicas] == [
        ("CANCELLED", None, signal.SIGTERM),
        ("FAILED", 3, None),
        ("CANCELLED", None, signal.SIGTERM),
    ]


def test_the_signal_that_killed_a_replica_is_kept(local: Any) -> None:
    local.submit("app", "kill -9 $$")
    status = local.ended("app")
    assert (status.replicas[0].exit_code, status.replicas[0].signal) == (None, signal.SIGKILL)
    assert status.message == "replica r0/0 ended with signal 9"


def test_a_cancel_grants_the_grace_and_keeps_the_exit_code(local: Any) -> None:
    local.submit("app", "trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; sleep 60 & wait")
    local.said("app", "ready")
    local.scheduler.cancel("app")
    status = local.ended("app")
    assert (status.state, status.raw) == ("CANCELLED", "cancelled")
    assert status.replicas[0].exit_code == 0
    assert "saved" in local.output("app")


def test_the_stubborn_are_killed_after_the_grace_wherever_they_hide(local: Any) -> None:
    hidden = "env -i /usr/bin/setsid /bin/sh -c 'trap \"\" TERM; echo hidden $$; sleep 60; :' &"
    local.submit("app", f"trap '' TERM; {hidden} echo ready; sleep 60; :", grace_s=1)
    hidden_process = local.printed_process("app", "hidden")
    local.said("app", "ready")
    main = local.replica("app").process
    begin = time.monotonic()
    local.scheduler.cancel("app")
    status = local.ended("app")
    assert time.monotonic() - begin >= 1
    assert status.replicas[0].signal == signal.SIGKILL
    # Terminal means that all is over, so nobody has to be waited for.
    local.gone(main, timeout_s=0.1)
    local.gone(hidden_process, timeout_s=0.1)


def test_what_a_finished_replica_leaves_behind_is_ended(local: Any) -> None:
    local.submit("app", "setsid sh -c 'echo child $$; sleep 60; :' & sleep 0.5")
    child = local.printed_process("app", "child")
    assert local.ended("app").state == "SUCCEEDED"
    local.gone(child, timeout_s=0.1)


def test_a_lost_supervisor_takes_everything_down_though_nobody_asks(local: Any) -> None:
    local.submit("app", "setsid sh -c 'echo child $$; sleep 60; :' & sleep 60", "sleep 60")
    child = local.printed_process("app", "child")
    mains = [local.replica("app", 0).process, local.replica("app", 1).process]
    local.kill_supervisor("app")
    for process in [*mains, child]:
        local.gone(process)
    local.until(lambda: local.recorded("app").raw == "supervisor_lost", 5)
    status = local.recorded("app")
    assert status.state == "FAILED"
    assert all(replica.end_ns for replica in status.replicas)
    assert "lost" in status.message


def test_whoever_looks_buries_what_supervisor_and_guard_left(local: Any) -> None:
    local.submit("app", "setsid sh -c 'trap \"\" TERM; echo child $$; sleep 60; :' & sleep 60")
    child = local.printed_process("app", "child")
    main = local.replica("app").process
    os.kill(local.guard("app"), signal.SIGKILL)
    local.kill_supervisor("app")
    local.gone(main)
    assert local.recorded("app").ended_ns is None
    status = local.detail("app")
    assert (status.state, status.raw) == ("FAILED", "supervisor_lost")
    local.gone(child, timeout_s=0.1)
    assert local.detail("app") == status


def test_sigterm_that_nobody_asked_for_is_a_preemption(local: Any) -> None:
    local.submit("app", "trap 'echo told; exit 143' TERM; echo ready; sleep 60 & wait")
    local.said("app", "ready")
    os.kill(local.recorded("app").supervisor.pid, signal.SIGTERM)
    status = local.ended("app")
    assert (status.state, status.raw) == ("FAILED", "PREEMPTED")
    assert status.replicas[0].exit_code == 143


@pytest.mark.parametrize(("entrypoint", "code"), [("no-such-program", 127), ("/etc/hostname", 126)])
def test_a_command_that_cannot_run_says_so(local: Any, entrypoint: str, code: int) -> None:
    local.submit("app", "unused")
    request = local.app("app").read_request()
    local.ended("app")
    other = local.app("bad")
    other.path.mkdir()
    broken = request.replicas[0]._replace(argv=[entrypoint])
    local.start(other, request._replace(app="bad", replicas=(broken,)))
    status = local.ended("bad")
    assert status.replicas[0].exit_code == code
    assert f"cannot run {entrypoint!r}" in local.output("bad")


def test_a_replica_starts_with_default_signals_and_nothing_inherited(local: Any) -> None:
    local.submit("app", "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -w")
    local.ended("app")
    words = local.output("app").split()
    blocked, ignored = (int(words[index], 16) for index in (1, 3))
    # The C library keeps signals 32 and 33 to itself; make starts its commands with them ignored.
    assert (blocked & 0x7FFFFFFF, ignored & 0x7FFFFFFF) == (0, 0)
    # stdin, stdout, stderr (the pipe) and the folder that ls reads
    assert words[4] == "4"
