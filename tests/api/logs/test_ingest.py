"""Events over the network: good ones are stored, and each bad one is told by its line."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import requests
from sqlalchemy import text

from airflow_ett.events import AttemptId, CursorFile, Event, JobKey, encode
from airflow_ett.storage.access import MOST_BODY, MOST_LINE, MOST_LINES
from airflow_ett.store import queries
from airflow_ett.store.revision import REVISION, VERSION_TABLE
from tests.api.logs.conftest import JOB
from tests.api.server import Api

Ask = Callable[..., requests.Response]
S = 10**9


def _event(seq: int, **data: object) -> Event:
    return Event(JOB, "trainer-1.0.0-r0-p7", seq, 10**18 + seq, "note", AttemptId(1), 0, data)


def test_what_was_stored_before_is_known(ask: Ask, api: Api) -> None:
    body = encode(_event(0)) + encode(_event(1))
    first = ask("POST", "/events", role="trainer", data=body).json()
    assert first == {"job": JOB, "new": 2, "known": 0, "rejected": []}
    again = ask("POST", "/events", role="trainer", data=body + encode(_event(2))).json()
    assert again == {"job": JOB, "new": 1, "known": 2, "rejected": []}
    assert list(api.storage(JOB).events("nodes")) == [_event(n) for n in range(3)]
    assert ask("POST", "/events", role="trainer", data=b"").json()["new"] == 0


def test_bad_lines_are_told_and_good_ones_stored(ask: Ask, api: Api) -> None:
    """Also those that JSON takes and no database does."""
    deep: object = 1
    for _ in range(60):
        deep = [deep]
    lines = [
        encode(_event(0, text="\ud800 \0 '\" é")).strip(),
        b"{not json",
        b"",
        b'"text"',
        encode(_event(1)).strip()[:-5],
        json.dumps({"job": JOB, "writer": "w", "seq": 1.5, "time": 1, "event": "x"}).encode(),
        json.dumps({"job": JOB, "writer": "a\0b", "seq": 1, "time": 1, "event": "x"}).encode(),
        json.dumps({"job": JOB, "writer": "w" * 251, "seq": 1, "time": 1, "event": "x"}).encode(),
        json.dumps({"job": JOB, "writer": "w", "seq": 2**63, "time": 1, "event": "x"}).encode(),
        encode(_event(2, deep=deep)).strip(),
        b'{"job": "' + b"[" * 100_000,
        encode(_event(3, text="x" * MOST_LINE)).strip(),
        encode(Event("f" * 20, "w", 0, 1, "x")).strip(),
        b"\xff\xfe",
        encode(_event(4)).strip() + b"\r",
    ]
    answer = ask("POST", "/events", role="trainer", data=b"\n".join(lines)).json()
    assert answer["new"] == 2
    assert [bad["line"] for bad in answer["rejected"]] == [2, *range(4, 15)]
    problems = {bad["line"]: bad["problem"] for bad in answer["rejected"]}
    assert "not a line of JSON" in problems[2]
    assert "seq is not a whole number" in problems[6]
    assert "no database stores" in problems[7]
    assert "250 characters" in problems[8]
    assert "nested" in problems[10]
    assert str(MOST_LINE) in problems[12]
    assert "of job ffff" in problems[13]
    assert max(map(len, problems.values())) <= 300
    assert list(api.storage(JOB).events("nodes")) == [
        _event(0, text="\ud800 \0 '\" é"),
        _event(4),
    ]


def test_a_body_may_be_packed_and_has_a_bound(ask: Ask) -> None:
    def post(body: object, encoding: str = "gzip") -> int:
        headers = {"Content-Encoding": encoding}
        return ask("POST", "/events", role="trainer", data=body, headers=headers).status_code

    good = encode(_event(0))
    assert post(gzip.compress(good)) == 200
    assert post(gzip.compress(good), "GZIP") == 200
    assert post(good, "identity") == 200
    assert post(good, "br") == 415
    assert post(good) == 400
    assert post(gzip.compress(good)[:-4]) == 400
    assert post(gzip.compress(good) + b"more") == 400
    assert post(gzip.compress(b"\n" * (MOST_BODY + 1))) == 413
    assert post(b"x" * (MOST_BODY + 1), "identity") == 413
    assert post(iter([b"x" * MOST_BODY, b"x"]), "identity") == 413
    many = ask("POST", "/events", role="trainer", data=b"\n" * (MOST_LINES + 1))
    assert many.status_code == 413
    assert str(MOST_LINES) in many.json()["detail"]


def _training(key: JobKey, now_ns: int) -> list[Event]:
    job, writer = key.id, "trainer-1.0.0-r0-p7"
    opened = {"key": asdict(key), "scheduler": "slurm", "accelerators": 2}
    submitted = {"submission": 1, "layer": "first", "app": "a", "handle": "h"}
    begin = now_ns - 100 * S
    interval = {"from": begin, "to": begin + 40 * S, "cursor_from": 0, "cursor_to": 400}
    interval |= {"steps": 40, "step_ns": 40 * S, "wait_ns": 0, "other_ns": 0}
    first = AttemptId(1)
    return [
        Event(job, "launcher-1", 0, begin, "job_opened", data=opened),
        Event(job, "launcher-1", 1, begin, "submitted", first, data=submitted),
        Event(job, writer, 0, begin, "session_started", first, 0, {"cursor_hwm": 0}),
        Event(job, writer, 1, begin + 40 * S, "interval", first, 0, interval),
    ]


@pytest.mark.parametrize("more", [{}, {"from": "a later version"}])
def test_a_job_cannot_pass_for_one_of_another_dag(ask: Ask, api: Api, more: dict[str, str]) -> None:
    """Else whoever holds a job's token could fill another DAG's sums, and its readers' lists."""
    key = JobKey("default", "ranker", "run-1", "train")
    opened, *rest = _training(key, 10**18)
    other = {**asdict(key), "dag_id": "secret-dag", **more}
    body = encode(replace(opened, data={**opened.data, "key": other}))
    token = api.token(key.id)()
    answer = ask("POST", "/events", token=token, data=body + b"".join(map(encode, rest)))
    assert (answer.json()["new"], [bad["line"] for bad in answer.json()["rejected"]]) == (3, [1])
    assert "key is not the job's" in answer.text
    assert [job.dag_id for job in queries.jobs(api.store)] == [""]
    assert ask("POST", "/events", token=token, data=encode(opened)).json()["new"] == 1
    assert [job.dag_id for job in queries.jobs(api.store)] == ["ranker"]


def test_a_job_is_measured_with_its_cursor_and_its_heartbeat(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is from a run directory; a heartbeat alone has it measured again after 10 s."""
    key = JobKey("default", "ranker", "run-1", "train")
    place = api.storage(key.id)
    log = _training(key, place.now_ns())
    place.append("launcher/e00000001.jsonl", log)
    (job,) = queries.jobs(api.store)
    assert (job.dag_id, job.state, job.effective_ns) == ("ranker", "running", 40 * S)
    begin = log[0].time_ns
    file = tmp_path / "cursor"
    cursor = CursorFile(file)
    at, to = begin + 40 * S, begin + 70 * S
    cursor.write(1, 0, 0, 0, 7, 2, 700, 700, at, to, 400, 30, 30 * S, 0, 0, 0)
    cursor.close()
    monkeypatch.setattr("airflow_ett.store.append._EVERY_S", 0.0)
    place.write("cursor", file.read_bytes())
    (job,) = queries.jobs(api.store)
    assert job.effective_ns == 70 * S
    wall_ns = job.wall_ns
    place.write("nodes/heartbeat-1.0-n0", b"")
    (job,) = queries.jobs(api.store)
    assert job.wall_ns > wall_ns
    assert job.wall_ns >= 99 * S


def test_events_that_cannot_be_measured_are_stored(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = JobKey("default", "ranker", "run-1", "train")
    place = api.storage(key.id)
    log = _training(key, place.now_ns())

    def fail(*_: object, **__: object) -> None:
        raise KeyError("odd")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr("airflow_ett.store.folds.JobFold.measure", fail)
        place.append("launcher/e00000001.jsonl", log[:3])
    assert "stored but cannot be measured: KeyError('odd')" in caplog.text
    assert queries.jobs(api.store) == []
    assert len(list(place.events("launcher"))) == 2
    place.append("nodes/t.jsonl", log[3:])
    (job,) = queries.jobs(api.store)
    assert job.effective_ns == 40 * S


def test_a_database_that_was_upgraded_meanwhile_gets_nothing_from_an_old_server(
    ask: Ask, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.api.guard._CHECK_S", 0.0)
    assert ask("POST", "/events", role="trainer", data=encode(_event(0))).status_code == 200
    _set_revision(api, "9999")
    answer = ask("POST", "/events", role="trainer", data=encode(_event(1)))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    _set_revision(api, REVISION)
    assert ask("POST", "/events", role="trainer", data=encode(_event(1))).json()["new"] == 1


def _set_revision(api: Api, revision: str) -> None:
    told = text(f"UPDATE {VERSION_TABLE} SET version_num = :told").bindparams(told=revision)
    api.store.write(lambda connection: connection.execute(told))
