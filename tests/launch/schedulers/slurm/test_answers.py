"""What Slurm says of jobs. ``recorded/`` is of a real Slurm 22.05.8; what later releases write is
after their own documentation (sacct(1), squeue(1) of 23.02 to 25.05), not recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_ett.launch.schedulers.slurm.answers import (
    Job,
    read_sacct,
    read_squeue,
    sacct_argv,
    squeue_argv,
)

RECORDED = Path(__file__).parent / "recorded"


def in_queue() -> dict[str, Job]:
    return {job.name: job for job in read_squeue((RECORDED / "squeue-22.05").read_text())}


def in_accounts() -> dict[str, Job]:
    return {job.name: job for job in read_sacct((RECORDED / "sacct-22.05").read_text())}


QUEUE = {
    "done": Job(1, "done", "COMPLETED", "", "n1", 0, 1796007856, 1796007858, 0, None, True),
    "five": Job(
        2, "five", "FAILED", "NonZeroExitCode", "n1", 0, 1796007856, 1796007857, 5, None, True
    ),
    "shell137": Job(
        3, "shell137", "FAILED", "NonZeroExitCode", "n1", 0, 1796007856, 1796007858, 137, None, True
    ),
    "killed": Job(
        4, "killed", "FAILED", "JobLaunchFailure", "n1", 0, 1796007856, 1796007858, 0, 9, True
    ),
    "held": Job(5, "held", "PENDING", "JobHeldUser", "", 0, None, None, 0, None, True),
    "closed": Job(6, "closed", "PENDING", "PartitionDown", "", 0, None, None, 0, None, True),
    "limit": Job(7, "limit", "TIMEOUT", "TimeLimit", "n2", 0, 1796007856, 1796007945, 0, 15, True),
    "lost": Job(
        9, "lost", "NODE_FAIL", "NodeDown", "n3", 0, 1796007856, 1796007886, 0, None, False
    ),
    "lostre": Job(
        10, "lostre", "PENDING", "BeginTime", "", 1, 1796008007, 1827544007, 0, None, True
    ),
    "pre": Job(13, "pre", "PENDING", "BeginTime", "", 1, 1796008029, None, 0, None, True),
    "cancelled": Job(
        11, "cancelled", "CANCELLED", "", "n3", 0, 1796007856, 1796007858, 0, 15, True
    ),
    "cancelq": Job(
        12, "cancelq", "CANCELLED", "JobHeldUser", "", 0, 1796007858, 1796007858, 0, None, True
    ),
}


@pytest.mark.parametrize("name", QUEUE)
def test_22_05_of_the_queue(name: str) -> None:
    assert in_queue()[name] == QUEUE[name]


ACCOUNTS = {
    "done": {},
    "five": {"reason": ""},
    "shell137": {"reason": "", "exit_code": 9},
    "killed": {"reason": ""},
    "held": {},
    "limit": {"reason": "", "signal": None},
    "lostre": {"begin_s": None, "end_s": None, "former": "NODE_FAIL"},
    "pre": {"begin_s": None, "former": "PREEMPTED"},
    "cancelled": {"signal": None},
    "cancelq": {},
}
"""In what the accounts differ from the queue."""


@pytest.mark.parametrize("name", ACCOUNTS)
def test_22_05_of_the_accounts(name: str) -> None:
    same = replace(QUEUE[name], queued=False, requeue=False, **ACCOUNTS[name])  # type: ignore[arg-type]
    assert in_accounts()[name] == same


def test_names_are_told_whole() -> None:
    name = "a-name-that-is-longer-than-twenty-characters"
    assert in_queue()[name].nodes == "n[1-2]"
    assert in_accounts()[name].nodes == "n[1-2]"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("7|a|RUNNING|None|(null)|0|5|N/A|0:0|1|", Job(7, "a", "RUNNING", begin_s=5, exit_code=0)),
        ("7|a|PENDING|(null)||0|N/A|N/A|0:0|yes|", Job(7, "a", "PENDING", exit_code=0)),
        ("7|a|FAILED|None|n1|2|5|6|5:0|1|", Job(7, "a", "FAILED", "", "n1", 2, 5, 6, 5)),
        ("7|a|FAILED|None|n1|0|5|6|0:9|1|", Job(7, "a", "FAILED", "", "n1", 0, 5, 6, 0, 9)),
        ("7|a|NEW_STATE|None|n1|x|Unknown|6||1|", Job(7, "a", "NEW_STATE", "", "n1", 0, None, 6)),
    ],
)
def test_later_releases_of_the_queue(line: str, expected: Job) -> None:
    (job,) = read_squeue(line + "\n")
    assert job == replace(expected, requeue=True)


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("7|a|CANCELLED by 1000|None|n1|5|6|0:0", "CANCELLED"),
        ("7|a|CANCELLED+|None|n1|5|6|0:0", "CANCELLED"),
        ("7|a|OUT_OF_MEMORY|OutOfMemory|n1|5|6|0:125", "OUT_OF_MEMORY"),
        ("7|a|OUT_OF_ME+|OutOfMemory|n1|5|6|0:125", "OUT_OF_ME"),
    ],
)
def test_states_of_the_accounts(line: str, state: str) -> None:
    assert [job.state for job in read_sacct(line)] == [state]


@pytest.mark.parametrize("line", ["", "7|a", "7_1|a|RUNNING|None|n1|0|5|6|0|1|", "7+0|a|R|||||||"])
def test_what_is_no_job_of_ours_is_passed_over(line: str) -> None:
    assert read_squeue(line) == []


def test_each_run_is_counted_and_the_newest_is_told() -> None:
    runs = "".join(
        f"7|a|{state}|None|n{number}|5|6|0:0\n"
        for number, state in enumerate(["PREEMPTED", "NODE_FAIL", "COMPLETED"], start=1)
    )
    (job,) = read_sacct(runs)
    assert (job.state, job.nodes, job.restart) == ("COMPLETED", "n3", 2)
    assert job.former == "NODE_FAIL"


def test_a_number_that_came_again_is_another_job() -> None:
    """What a slurmctld that was killed has forgotten stays RUNNING in the accounts for ever."""
    rows = [("old", "RUNNING", "Unknown"), ("new", "RUNNING", "Unknown"), ("new", "PENDING", "")]
    (job,) = read_sacct("".join(f"7|{n}|{s}|None|n1|5|{end}|0:0\n" for n, s, end in rows))
    assert (job.name, job.state, job.restart, job.former) == ("new", "PENDING", 1, "")


def test_the_commands() -> None:
    assert squeue_argv()[:4] == ["squeue", "--me", "--noheader", "--states=all"]
    assert "--duplicates" in sacct_argv("--jobs=1")
    assert sacct_argv("--jobs=1")[-1] == "--jobs=1"
