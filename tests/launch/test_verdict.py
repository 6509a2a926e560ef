"""Every row of the verdict table, and that consequences never outrank their cause."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Cause, Event, Kind
from airflow_ett.launch.status import ReplicaStatus
from airflow_ett.launch.verdict import Sighting, judge
from airflow_ett.launch.witnesses import first_failing


def reply(*ranks: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"node": 0, "host": "gpu-1", "ranks": list(ranks), "oom_kills": 0, **fields}


def rank(number: int = 0, **fields: Any) -> dict[str, Any]:
    return {"rank": number, "exit_code": None, "signal": None, "end_ns": 10, "error": None} | fields


def session_ended(outcome: str) -> Event:
    return Event("j", "t", 0, 5, Kind.SESSION_ENDED, AttemptId(1), 0, {"outcome": outcome})


def failure(error: Mapping[str, Any], time_ns: int = 4, **data: Any) -> Event:
    return Event("j", "t", 1, time_ns, Kind.FAILURE, AttemptId(1), 0, {**error, **data})


VALUE_ERROR = {"type": "ValueError", "message": "bad batch"}
CUDA_OOM = {"type": "torch.OutOfMemoryError", "message": "tried to allocate 2 GiB"}

TABLE: list[tuple[str, Sighting, Cause | None]] = [
    ("success", Sighting("SUCCEEDED", "COMPLETED"), None),
    ("success beats a late cancel", Sighting("SUCCEEDED", None, cancel_reason=Cause.TIMEOUT), None),
    ("our cancel", Sighting("CANCELLED", None, cancel_reason=Cause.TIMEOUT), Cause.TIMEOUT),
    (
        "user cancel",
        Sighting("FAILED", None, cancel_reason=Cause.USER_CANCELLED),
        Cause.USER_CANCELLED,
    ),
    ("slurm preemption", Sighting("FAILED", "PREEMPTED"), Cause.PREEMPTED),
    ("slurm time limit", Sighting("FAILED", "TIMEOUT"), Cause.TIMEOUT),
    ("slurm memory", Sighting("FAILED", "OUT_OF_MEMORY"), Cause.OUT_OF_MEMORY),
    ("node loss", Sighting("FAILED", "NODE_FAIL"), Cause.INFRASTRUCTURE),
    ("no start on its node", Sighting("FAILED", "LAUNCH_FAILED"), Cause.INFRASTRUCTURE),
    ("queued again unstarted", Sighting("FAILED", "REQUEUED"), Cause.INFRASTRUCTURE),
    ("supervisor lost", Sighting("FAILED", "supervisor_lost"), Cause.INFRASTRUCTURE),
    (
        "exception",
        Sighting("FAILED", None, replies=[reply(rank(exit_code=1, error=VALUE_ERROR))]),
        Cause.APPLICATION,
    ),
    (
        "memory exception",
        Sighting("FAILED", None, replies=[reply(rank(exit_code=1, error=CUDA_OOM))]),
        Cause.OUT_OF_MEMORY,
    ),
    ("sigkill", Sighting("FAILED", None, replies=[reply(rank(signal=9))]), Cause.INFRASTRUCTURE),
    (
        "oom killer",
        Sighting("FAILED", None, replies=[reply(rank(signal=9), oom_kills=1)]),
        Cause.OUT_OF_MEMORY,
    ),
    ("crash", Sighting("FAILED", None, replies=[reply(rank(signal=11))]), Cause.APPLICATION),
    (
        "sys.exit(3)",
        Sighting("FAILED", None, replies=[reply(rank(exit_code=3))]),
        Cause.APPLICATION,
    ),
    ("sigterm", Sighting("FAILED", None, replies=[reply(rank(exit_code=143))]), Cause.PREEMPTED),
    (
        "preempted by its own word",
        Sighting("FAILED", None, events=[session_ended("preempted")]),
        Cause.PREEMPTED,
    ),
    (
        "error by its own word",
        Sighting("FAILED", None, events=[session_ended("error")]),
        Cause.APPLICATION,
    ),
    ("forgotten, but done", Sighting(None, None, events=[session_ended("success")]), None),
    ("forgotten", Sighting(None, None), Cause.VANISHED),
    ("failed, no word", Sighting("FAILED", None), Cause.UNKNOWN),
    (
        "failed although the trainer said success",
        Sighting("FAILED", None, events=[session_ended("success")]),
        Cause.UNKNOWN,
    ),
    ("cancelled elsewhere", Sighting("CANCELLED", "CANCELLED"), Cause.USER_CANCELLED),
    (
        "cancelled elsewhere, with the agent's word that its node got SIGTERM",
        Sighting(
            "CANCELLED",
            "cancelled",
            replies=[reply(rank(signal=15, end_ns=20), sigterm_received_ns=15)],
        ),
        Cause.USER_CANCELLED,
    ),
    (
        "exit code 137 of a rank",
        Sighting("FAILED", None, replies=[reply(rank(exit_code=137))]),
        Cause.INFRASTRUCTURE,
    ),
    (
        "exit code 255, which is no signal's",
        Sighting("FAILED", None, replicas=[ReplicaStatus("trainer", 0, "FAILED", 255)]),
        Cause.APPLICATION,
    ),
    (
        "an exception told by the trainer alone",
        Sighting("FAILED", None, events=[failure(CUDA_OOM), session_ended("error")]),
        Cause.OUT_OF_MEMORY,
    ),
    (
        "forgotten, and done after a failure that was overcome",
        Sighting(None, None, events=[failure(VALUE_ERROR, 1), session_ended("success")]),
        None,
    ),
]


@pytest.mark.parametrize(("name", "seen", "cause"), TABLE)
def test_the_table(name: str, seen: Sighting, cause: Cause | None) -> None:
    verdict = judge(seen)
    assert verdict.cause == cause
    assert verdict.evidence["text"]
    assert verdict.evidence["source"] in {"scheduler", "launcher", "agent", "trainer"}


@pytest.mark.parametrize(
    ("code", "number", "cause"),
    [
        (None, 9, Cause.INFRASTRUCTURE),
        (137, None, Cause.INFRASTRUCTURE),
        (None, 15, Cause.PREEMPTED),
        (143, None, Cause.PREEMPTED),
        (None, 11, Cause.APPLICATION),
        (1, None, Cause.APPLICATION),
    ],
)
def test_a_replica_without_a_reply_is_judged_by_its_end(
    code: int | None, number: int | None, cause: Cause
) -> None:
    ended = ReplicaStatus("trainer", 0, "FAILED", code, number, "gpu-1")
    verdict = judge(Sighting("FAILED", "failed", replicas=[ReplicaStatus("trainer", 1), ended]))
    assert verdict.cause is cause
    assert "replica 0 on gpu-1" in verdict.evidence["text"]


def test_a_session_that_did_not_end_is_not_spoken_for_by_the_one_before() -> None:
    second = Event("j", "t", 1, 9, Kind.SESSION_STARTED, AttemptId(1), 0, {})
    seen = Sighting(None, None, events=[session_ended("success"), second])
    assert judge(seen).cause is Cause.VANISHED


def test_the_earliest_failure_wins_over_its_consequences() -> None:
    first = rank(3, exit_code=1, error=VALUE_ERROR, end_ns=100)
    later = rank(
        0, exit_code=1, error={"type": "RendezvousConnectionError", "message": ""}, end_ns=250
    )
    verdict = judge(Sighting("FAILED", None, replies=[reply(later), reply(first, host="gpu-2")]))
    assert verdict.evidence["replica"] == 3
    assert verdict.evidence["host"] == "gpu-2"
    assert "ValueError: bad batch" in verdict.evidence["text"]


def test_r21_an_out_of_memory_kill_names_what_is_known() -> None:
    verdict = judge(Sighting("FAILED", None, replies=[reply(rank(5, signal=9), oom_kills=2)]))
    assert verdict.cause is Cause.OUT_OF_MEMORY
    assert verdict.evidence["signal"] == 9
    assert "rank 5 on gpu-1" in verdict.evidence["text"]


def test_an_error_on_the_way_down_after_sigterm_is_a_preemption() -> None:
    failed = rank(exit_code=1, error=VALUE_ERROR, end_ns=20)
    seen = Sighting("FAILED", None, replies=[reply(failed, sigterm_received_ns=15)])
    assert judge(seen).cause is Cause.PREEMPTED


def test_a_peer_that_was_stopped_after_the_failure_changes_nothing() -> None:
    first = reply(rank(3, signal=9, end_ns=10), host="gpu-2")
    stopped = reply(rank(0, exit_code=143, end_ns=30), sigterm_received_ns=12)
    seen = Sighting("FAILED", None, replies=[stopped, first], events=[session_ended("preempted")])
    assert judge(seen).cause is Cause.INFRASTRUCTURE


def test_without_an_agent_the_trainers_exception_explains_the_replicas_exit() -> None:
    started = Event("j", "t", 2, 1, Kind.PROCESS_STARTED, data={"host": "gpu-7", "node": 1})
    replicas = [ReplicaStatus("t", 0, "CANCELLED", 143), ReplicaStatus("t", 1, "FAILED", 1)]
    verdict = judge(
        Sighting("FAILED", "failed", replicas=replicas, events=[started, failure(VALUE_ERROR)])
    )
    assert verdict.cause is Cause.APPLICATION
    assert verdict.evidence["text"] == "rank 0 on gpu-7 raised ValueError: bad batch"
    assert (verdict.evidence["exit_code"], verdict.evidence["node"]) == (1, 1)


def test_a_replica_that_was_stopped_for_anothers_failure_is_not_blamed() -> None:
    replicas = [ReplicaStatus("t", 0, "CANCELLED", 143), ReplicaStatus("t", 1, "FAILED", 3)]
    verdict = judge(Sighting("FAILED", "failed", replicas=replicas))
    assert verdict.cause is Cause.APPLICATION
    assert (verdict.evidence["replica"], verdict.evidence["exit_code"]) == (1, 3)


def test_an_error_after_the_trainer_got_sigterm_is_a_consequence() -> None:
    told = Event("j", "t", 3, 2, Kind.SIGNAL, AttemptId(1), 0, {"signal": "SIGTERM"})
    events = [told, failure(VALUE_ERROR), session_ended("preempted")]
    assert judge(Sighting("FAILED", None, events=events)).cause is Cause.PREEMPTED


@pytest.mark.parametrize(
    "decided",
    [
        Sighting("FAILED", "OUT_OF_MEMORY"),
        Sighting("FAILED", "PREEMPTED"),
        Sighting("CANCELLED", "cancelled"),
        Sighting("CANCELLED", "cancelled", cancel_reason=Cause.TIMEOUT),
    ],
)
def test_r21_how_the_process_ended_is_evidence_whoever_decides(decided: Sighting) -> None:
    seen = replace(decided, replies=[reply(rank(5, exit_code=137), node=2)])
    told = {"replica": 5, "node": 2, "host": "gpu-1", "exit_code": 137, "signal": None}
    assert told.items() <= judge(seen).evidence.items()


def test_a_page_of_a_message_is_cut_in_the_sentence_and_a_book_in_the_error() -> None:
    long = "line\n" * 1000
    error = {"type": "RuntimeError", "message": long, "traceback": "File\n" * 9000 + long}
    verdict = judge(Sighting("FAILED", None, replies=[reply(rank(exit_code=1, error=error))]))
    assert verdict.evidence["text"].startswith("rank 0 on gpu-1 raised RuntimeError: line line ")
    assert len(verdict.evidence["text"]) < 700
    told = verdict.evidence["error"]
    assert told["message"] == long
    assert told["traceback"].endswith(long)
    assert len(told["traceback"]) == 8000


def test_a_reply_in_a_form_of_its_own_is_judged_by_what_can_be_read() -> None:
    verdict = judge(Sighting("FAILED", None, replies=[reply(rank(exit_code=3, error="broken"))]))
    assert verdict.evidence["text"] == "rank 0 on gpu-1 exited with code 3."


def test_ranks_that_ended_well_are_no_failures() -> None:
    assert first_failing([reply(rank(exit_code=0))], [], []) is None
