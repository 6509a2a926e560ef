"""What several generations of Slurm write, read alike.

``recorded/…-others`` is of a real Slurm 22.05.8: a held array and one that ran, a het job that ran
and one that waits, a job that never starts, one that was refused, and a name with a bar in it.

The others were never run here. They are written by hand: the fields and their forms after squeue(1)
and sacct(1) of 23.11.4 and 24.05.4, squeue(1) of 24.11.3, Slurm's list of job states ("Job State
Codes", 24.05 on) and the sources of ``squeue`` and ``sacct`` up to 25.05, which print exit codes as
22.05 does: a wait status in the queue, and in the accounts two numbers, of which codes above 127
have lost their high bit. Where that does not tell for sure what a release writes, one way is in one
release's lines and the other in another's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_ett.launch.schedulers.slurm.answers import Job, read_sacct, read_squeue
from airflow_ett.launch.schedulers.slurm.states import state_of, status_of

RECORDED = Path(__file__).parent / "recorded"

QUEUES = {
    "23.11": """\
31|train|RUNNING|None|gpu[01-02]|0|1700000000|NONE|0|1|
32|train|FAILED|NonZeroExitCode|gpu01|0|1700000000|1700000060|35072|1|
33|train|PENDING|ReqNodeNotAvail, UnavailableNodes:gpu01|(null)|1|1700000200|N/A|0|1|
34|train|NODE_FAIL|NodeDown|gpu[01-02]|0|1700000000|1700000090|15|0|
""",
    "24.05": """\
31|train|RUNNING|None|gpu[01-02]|0|1700000000|NONE|0|yes|
32|train|FAILED|NonZeroExitCode|gpu01|0|1700000000|1700000060|137:0|yes|
33|train|PENDING|ReqNodeNotAvail, UnavailableNodes:gpu01||1|1700000200|N/A|0:0|yes|
34|train|NODE_FAIL|NodeDown|gpu[01-02]|0|1700000000|1700000090|0:15|no|
""",
    "24.11": """\
31|train|RUNNING|None|gpu[01-02]|0|1700000000|NONE|0|1|
32|train|FAILED|NonZeroExitCode|gpu01|0|1700000000|1700000060|35072|1|
33|train|PENDING|ReqNodeNotAvail, UnavailableNodes:gpu01||1|1700000200|N/A|0|1|
34|train|NODE_FAIL|NodeDown|gpu[01-02]|0|1700000000|1700000090|15|0|
""",
    "25.05": """\
31|train|RUNNING|(null)|gpu[01-02]|0|1700000000|Unknown|0|1|
32|train|FAILED|NonZeroExitCode|gpu01|0|1700000000|1700000060|35072|1|
33|train|PENDING|ReqNodeNotAvail, UnavailableNodes:gpu01|N/A|1|1700000200|Unknown|0|1|
34|train|NODE_FAIL|NodeDown|gpu[01-02]|0|1700000000|1700000090|15|0|
""",
}

QUEUED = [
    Job(31, "train", "RUNNING", "", "gpu[01-02]", 0, 1700000000, None, 0, None, True),
    Job(32, "train", "FAILED", "NonZeroExitCode", "gpu01", 0, 1700000000, 1700000060, 137, None,
        True),
    Job(33, "train", "PENDING", "ReqNodeNotAvail, UnavailableNodes:gpu01", "", 1, 1700000200, None,
        0, None, True),
    Job(34, "train", "NODE_FAIL", "NodeDown", "gpu[01-02]", 0, 1700000000, 1700000090, 0, 15,
        False),
]  # fmt: skip

ACCOUNTS = {
    "23.11": """\
31|train|RUNNING|None|gpu[01-02]|1700000000|Unknown|0:0
32|train|FAILED|None|gpu01|1700000000|1700000060|9:0
33|train|PREEMPTED|None|gpu01|1700000000|1700000100|0:0
33|train|PENDING|BeginTime|None assigned|Unknown|Unknown|0:0
35|train|CANCELLED by 1000|None|gpu01|1700000000|1700000100|0:15
""",
    "24.05": """\
31|train|RUNNING|None|gpu[01-02]|1700000000|Unknown|0:0
32|train|FAILED|None|gpu01|1700000000|1700000060|9:0
33|train|PREEMPTED|None|gpu01|1700000000|1700000100|0:0
33|train|PENDING|BeginTime|None assigned|None|None|0:0
35|train|CANCELLED by 1000|None|gpu01|1700000000|1700000100|0:15
""",
    "25.05": """\
31|train|RUNNING||gpu[01-02]|1700000000|Unknown|0:0
32|train|FAILED||gpu01|1700000000|1700000060|9:0
33|train|PREEMPTED||gpu01|1700000000|1700000100|0:0
33|train|PENDING|BeginTime||Unknown|Unknown|0:0
35|train|CANCELLED+||gpu01|1700000000|1700000100|0:15
""",
}

ACCOUNTED = [
    Job(31, "train", "RUNNING", "", "gpu[01-02]", 0, 1700000000, None, 0, None),
    Job(32, "train", "FAILED", "", "gpu01", 0, 1700000000, 1700000060, 9, None),
    Job(33, "train", "PENDING", "BeginTime", "", 1, None, None, 0, None, former="PREEMPTED"),
    Job(35, "train", "CANCELLED", "", "gpu01", 0, 1700000000, 1700000100, 0, 15),
]


@pytest.mark.parametrize("release", QUEUES)
def test_of_the_queue(release: str) -> None:
    assert read_squeue(QUEUES[release]) == QUEUED


@pytest.mark.parametrize("release", ACCOUNTS)
def test_of_the_accounts(release: str) -> None:
    assert read_sacct(ACCOUNTS[release]) == [replace(job, queued=False) for job in ACCOUNTED]


@pytest.mark.parametrize(
    ("state", "expected", "allocated"),
    [
        ("POWER_UP_NODE", "PENDING", True),
        ("CONFIGURING", "PENDING", True),
        ("EXPEDITING", "PENDING", False),
        ("LAUNCH_FAILED", "FAILED", True),
        ("RECONFIG_FAIL", "FAILED", True),
        ("NEVER_HEARD_OF", "UNKNOWN", True),
    ],
)
def test_states_that_22_05_does_not_have(state: str, expected: str, allocated: bool) -> None:
    (job,) = read_squeue(f"31|train|{state}|None|gpu01|0|1700000000|N/A|0|1|\n")
    assert state_of(job) == expected
    assert (status_of(job, "trainer", 1).allocated_ns is not None) is allocated


def test_22_05_of_others_jobs() -> None:
    queue = {job.id: job for job in read_squeue((RECORDED / "squeue-22.05-others").read_text())}
    accounts = {job.id: job for job in read_sacct((RECORDED / "sacct-22.05-others").read_text())}
    for job_id, name, state in (
        (2, "held-array", "PENDING"),
        (3, "array", "COMPLETED"),
        (6, "het-waits", "PENDING"),
        (7, "het-waits", "PENDING"),
        (9, "too-much", "FAILED"),
        (12, "never", "PENDING"),
    ):
        assert (queue[job_id].name, queue[job_id].state) == (name, state)
    assert [job for job in queue if queue[job].refused] == [9]
    assert [job for job in accounts if accounts[job].refused] == [9]
    assert state_of(queue[8]) == "UNKNOWN"  # a bar in its name, which none of ours has
