"""The attempts table."""

from typing import Any

from airflow_ett.ui.run.attempts import attempts


def test_attempts_tell_what_began_and_ended_them(lively: Any) -> None:
    table = attempts(lively.result, show_all=False)
    assert table.total == 4
    assert [line.layer for line in table.shown] == ["first", "scheduler", "airflow", "elastic"]
    assert table.shown[3].numbers == ("submission 2, requeue 0,", "elastic 1, try 2")
    assert [line.ended for line in table.shown] == [
        ("bad", "Preempted"),
        ("bad", "Out of memory"),
        ("bad", "Infrastructure"),
        ("run", "Running"),
    ]
    # A recovery stands with the attempt that made it.
    assert [line.ttr_ns for line in table.shown] == [
        None,
        *(one["ns"] for one in lively.result["ttr"]),
    ]
    assert [line.unrecovered_ns for line in table.shown] == [None] * 4
    assert table.shown[0].replay_ns == 0 < table.shown[1].replay_ns
    assert table.shown[2].cursor_from == lively.result["attempts"][2]["cursor_from"]


def test_the_last_attempt_of_a_failed_job_never_recovered(broken: Any) -> None:
    last = attempts(broken.result, show_all=False).shown[-1]
    assert last.unrecovered_ns == broken.result["ttr"][-1]["ns"]


def test_of_many_attempts_the_newest_are_shown(lively: Any) -> None:
    rows = lively.result["attempts"] * 5
    result = lively.result | {"attempts": rows}
    few, every = attempts(result, show_all=False), attempts(result, show_all=True)
    assert [line.number for line in few.shown] == list(range(9, 21))
    assert (len(every.shown), few.total) == (20, 20)
    assert few.shown == every.shown[8:]


def test_the_hosts_of_all_nodes_are_shown_and_else_the_one_that_is_known(lively: Any) -> None:
    rows = [one | {"hosts": [], "host": None} for one in lively.result["attempts"]]
    rows[0] |= {"hosts": ["n1", "n2", "n3", "gpu-a"], "host": "n1"}
    rows[1] |= {"host": "n7"}
    shown = attempts(lively.result | {"attempts": rows}, show_all=False).shown
    assert [line.hosts for line in shown] == ["n[1-3],gpu-a", "n7", "", ""]


def test_a_users_cancel_is_not_shown_as_a_failure(lively: Any) -> None:
    rows = [one | {"cause": "user_cancelled"} for one in lively.result["attempts"]]
    line = attempts(lively.result | {"attempts": rows}, show_all=False).shown[0]
    assert line.ended == ("none", "Cancelled by a user")
