"""The running commentary."""

from typing import Any

from airflow_ett.demo.narrate import Narrator
from airflow_ett.events import AttemptId, Event, Kind

SECOND = 1_000_000_000


def tell(narrator: Narrator, kind: str, time_ns: int, submission: int, **data: Any) -> str | None:
    return narrator.line(
        Event("0" * 20, "w", time_ns, time_ns, kind, AttemptId(submission), None, data)
    )


def test_a_failure_is_told_with_cause_and_delay() -> None:
    narrator = Narrator()
    tell(narrator, Kind.SUBMITTED, 0, 1, layer="first", handle="local_detached://x/a")
    started = tell(narrator, Kind.PROCESS_STARTED, 2 * SECOND, 1, role="trainer", pid=42)
    assert started == "attempt 1: trainer runs as process 42, 2.0\u00a0s after submission"
    ended = tell(narrator, Kind.PROCESS_ENDED, 9 * SECOND, 1, role="trainer", signal=9)
    assert ended == "attempt 1: trainer was ended by signal 9"
    evidence = {"text": "killed\nlong\ntail", "source": "reply"}
    judged = tell(
        narrator, Kind.ATTEMPT_ENDED, 10 * SECOND, 1, cause="infrastructure", evidence=evidence
    )
    assert judged == (
        "attempt 1: failed, seen 1.0\u00a0s after the trainer's end; cause infrastructure: killed"
    )


def test_a_resumed_attempt_says_who_began_it_and_where() -> None:
    narrator = Narrator()
    tell(narrator, Kind.SUBMITTED, 0, 1, layer="first", handle="h1")
    line = tell(narrator, Kind.SUBMITTED, 5, 2, layer="airflow", handle="h2", resume_cursor=120_000)
    assert line == "attempt 2: submitted (Airflow's retry, resumes at cursor 120,000) as h2"


def test_small_compiles_agents_and_unknown_events_are_not_told() -> None:
    narrator = Narrator()
    assert tell(narrator, Kind.COMPILE, 1, 1, duration_ns=20_000_000) is None
    assert tell(narrator, Kind.PROCESS_STARTED, 1, 1, role="agent", pid=1) is None
    assert tell(narrator, "weather", 1, 1) is None


def test_what_became_of_a_lever_is_told_in_one_line() -> None:
    narrator = Narrator()
    facts = {"lever": "compile_cache", "outcome": "used", "reason": "saved by attempt 1"}
    line = tell(narrator, Kind.LEVER, 1, 2, duration_ns=SECOND // 5, **facts)
    assert line == "attempt 1: compile cache used in 200\u00a0ms (saved by attempt 1)"
    line = tell(narrator, Kind.LEVER, 2, 2, lever="fast_batch", outcome="off")
    assert line == "attempt 1: fast batch off"


def test_a_published_version_is_told_with_what_that_released() -> None:
    narrator = Narrator()
    facts = {"version": "7", "uri": "/m/7", "begin": 0, "end": 900 * SECOND}
    line = tell(narrator, Kind.PUBLISHED, 1, 1, **facts)
    assert line == "published version 7 in 15\u00a0m\u00a000\u00a0s: /m/7"
    assert tell(narrator, Kind.JOB_OPENED, 2, 1, accelerators=8) is None
    line = tell(narrator, Kind.PUBLISHED, 3, 1, **facts)
    assert line is not None
    assert line.endswith("00\u00a0s, 2.0 accelerator-hours released: /m/7")
    line = tell(narrator, Kind.PUBLISHED, 4, 1, existed=True, **facts)
    assert line == "version 7 was published before: /m/7"
