"""What people read of an attempt that failed: complete, plain, and no longer than a page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.events import Cause, JobKey, Layer
from airflow_ett.launch.history import Submission
from airflow_ett.launch.lastwords import describe, last_words

KEY = JobKey("default", "ranker", "monthly", "train")
ENDED = Submission(3, "app", "d", Layer.FIRST, 1, 0, handle="slurm://ett/42", ended=True)
TRACE = "Traceback (most recent call last):\n  File x\nValueError: bad batch"
PROOF = {
    "exit_code": 1,
    "signal": None,
    "node": 1,
    "log": "/logs/trainer-1",
    "lines": ["step 9", "ValueError: bad batch"],
    "error": {"type": "ValueError", "message": "bad batch", "traceback": TRACE},
}


def failed(cause: Cause = Cause.APPLICATION, **fields: Any) -> Submission:
    told = {"evidence": "rank 9 on gpu-2 raised ValueError: bad batch", "proof": PROOF}
    return replace(ENDED, **{"cause": cause, **told, **fields})


class Scheduler:
    """Answers for one node; ``lines`` may be an error."""

    def __init__(self, lines: Any) -> None:
        self.lines = lines

    def log_location(self, handle: str, node: int) -> str:
        return f"/logs/{handle.rpartition('/')[2]}-{node}"

    def last_lines(self, handle: str, node: int, count: int) -> list[str]:
        if isinstance(self.lines, Exception):
            raise self.lines
        lines: list[str] = self.lines
        return lines[-count:]


def words(lines: Any) -> dict[str, Any]:
    gateway: Any = Scheduler(lines)
    return last_words(gateway, "slurm://ett/42", 2)


def test_a_failure_is_told_whole() -> None:
    assert describe(KEY, failed(cursor=70), checkpoint="/ckpt/c60") == "\n".join(
        [
            "Job ranker.train run monthly generation 1, submission 3 ended with cause application: "
            "rank 9 on gpu-2 raised ValueError: bad batch",
            "  exit code: 1",
            "  app: slurm://ett/42",
            "  log: /logs/trainer-1",
            "  data position: cursor 70",
            "  next resumes from: /ckpt/c60",
            "Last lines of node 1's output:",
            "  step 9",
            "  ValueError: bad batch",
        ]
    )


def test_the_traceback_is_shown_where_the_output_has_lost_it() -> None:
    text = describe(KEY, failed(proof={**PROOF, "lines": ["Killing peers"]}))
    assert "End of its traceback:\n  Traceback" in text
    assert text.endswith("Last lines of node 1's output:\n  Killing peers")
    assert "ValueError: bad batch" in describe(KEY, failed(proof={**PROOF, "lines": None}))


def test_a_success_is_one_line() -> None:
    done = replace(ENDED, evidence="The scheduler reports success.")
    text = describe(KEY, done, checkpoint="/ckpt/c60")
    assert text.startswith("Job ranker.train run monthly generation 1, submission 3")
    assert text.endswith("The scheduler reports success.")


@pytest.mark.parametrize(
    ("cause", "hint"),
    [
        (Cause.OUT_OF_MEMORY, "more memory"),
        (Cause.INFRASTRUCTURE, "max_relaunches"),
        (Cause.PREEMPTED, "max_relaunches"),
        (Cause.TIMEOUT, "limit"),
    ],
)
def test_what_can_be_done_is_said(cause: Cause, hint: str) -> None:
    assert hint in describe(KEY, failed(cause))


def test_an_end_of_which_nothing_is_known_is_told_all_the_same() -> None:
    text = describe(KEY, replace(ENDED, cause=Cause.VANISHED, evidence="Nobody knows it."))
    assert "cause vanished: Nobody knows it." in text
    assert "slurm://ett/42" in text


def test_lines_are_a_terminals_without_its_colours_and_not_endless() -> None:
    told = words(["\x1b[1;31mred\x1b[0m and\tplain\x00", "x" * 100_000, *["y"] * 100])
    assert told["lines"] == ["y"] * 20
    assert words(["\x1b[1;31mred\x1b[0m and\tplain\x00\x07"])["lines"] == ["red and\tplain"]
    (line,) = words(["x" * 100_000])["lines"]
    assert len(line) < 500


def test_who_may_not_quote_tells_the_address_alone() -> None:
    gateway: Any = Scheduler(["secret"])
    told = last_words(gateway, "slurm://ett/42", 2, quote=False)
    assert told == {"handle": "slurm://ett/42", "node": 2, "log": "/logs/42-2"}


def test_the_address_is_kept_where_the_output_cannot_be_read() -> None:
    told = words(LaunchError("no such file"))
    assert told == {"handle": "slurm://ett/42", "node": 2, "log": "/logs/42-2"}
