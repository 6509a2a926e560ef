"""The files of a job in the API, over real connections."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from urllib.parse import quote, urlsplit

import pytest
import requests
from sqlalchemy import func, select, text

from airflow_ett.events import AttemptId, Event
from airflow_ett.storage.access import MOST_FILE
from airflow_ett.store import tables
from tests.api.logs.conftest import JOB
from tests.api.server import PREFIX, Api

Ask = Callable[..., requests.Response]
FILES = f"/logs/{JOB}/files"


def test_a_file_is_made_once_and_written_whole(ask: Ask) -> None:
    def put(content: bytes, **headers: str) -> int:
        path = f"{FILES}/launcher/claims/00000001.json"
        return ask("PUT", path, role="launcher", data=content, headers=headers).status_code

    once = {"If-None-Match": "*"}
    assert [put(b"mine", **once), put(b"mine", **once), put(b"theirs", **once)] == [201, 201, 412]
    assert put(b"anew") == 204
    assert put(b"x", **{"If-None-Match": '"tag"'}) == 400
    answer = ask("GET", f"{FILES}/launcher/claims/00000001.json", role="trainer")
    assert (answer.status_code, answer.content) == (200, b"anew")
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_folder_lists_its_own_files_by_name(api: Api, ask: Ask) -> None:
    """Capitals are capitals, ``_`` and ``%`` no wildcards, and other jobs' files others'."""
    place = api.storage(JOB)
    for name in ("nodes/b", "nodes/a", "nodes/deep/c", "NODES/d", "nodes_/e", "f", "nodesXe"):
        place.write(name, b"")
    api.storage("f" * 20).write("nodes/z", b"")
    listed = ask("GET", FILES, role="trainer", params={"folder": "nodes"}).json()
    assert [entry["name"] for entry in listed] == ["a", "b"]
    assert [e.name for e in place.entries("")] == ["f", "nodesXe"]
    assert [e.name for e in place.entries("nodes/deep")] == ["c"]
    assert abs(listed[0]["time_ns"] - time.time_ns()) < 60 * 10**9
    assert listed[0]["time_ns"] >= listed[1]["time_ns"]


ODD = [
    *("../x", "..", "nodes/../launcher/x", "nodes/%2e%2e/x", "/etc/passwd", "a//b", "nodes/"),
    *("a\0b", "nodes/\ud800", "nodes/'\"", "nodes/<b>", "nodes/é", "a\r\nX: y", "x" * 250),
    *("nodes/t.jsonl", "launcher/e00000001.jsonl", "a b", "nodes/draft-x", "nodes/漢"),
]


def test_odd_names_are_refused_and_nothing_is_written(api: Api) -> None:
    """As they are on the wire: other clients do not tidy them."""
    host = urlsplit(api.base).netloc
    headers = {"Authorization": f"Bearer {api.token(JOB)()}"}
    for name in ODD:
        path = f"{PREFIX}{FILES}/{quote(name.encode(errors='surrogatepass'), safe='')}"
        for method in ("GET", "PUT", "DELETE"):
            connection = http.client.HTTPConnection(host, timeout=20)
            connection.request(method, path, b"x" if method == "PUT" else None, headers)
            answer = connection.getresponse()
            # A newline matches no route.
            assert answer.status == (404 if "\n" in name else 422), name
            assert "\n" in name or "name" in json.load(answer)["detail"]
            connection.close()
    with api.store.read() as connection:
        assert connection.scalar(select(func.count()).select_from(tables.file)) == 0


def test_a_file_has_a_bound(ask: Ask) -> None:
    path = f"{FILES}/cursor"
    assert ask("PUT", path, role="trainer", data=b"x" * MOST_FILE).status_code == 204
    # A length that was told, and one that only shows.
    for body in (b"x" * (MOST_FILE + 1), iter([b"x" * MOST_FILE, b"x"])):
        answer = ask("PUT", path, role="trainer", data=body)
        assert (answer.status_code, str(MOST_FILE) in answer.json()["detail"]) == (413, True)
    assert len(ask("GET", path, role="trainer").content) == MOST_FILE


def test_events_come_in_pages_writer_by_writer(api: Api, ask: Ask) -> None:
    """Launchers by their epochs, although ``launcher-10`` sorts before ``launcher-9``."""
    place = api.storage(JOB)

    def event(writer: str, seq: int, submission: int = 1) -> Event:
        return Event(JOB, writer, seq, 10**18 + seq, "note", AttemptId(submission))

    launchers = [event(f"launcher-{n}", 0) for n in (1, 9, 10)]
    nodes = [event(f"t'\"%.é-{n}", seq, n) for n in (1, 2) for seq in range(2600)]
    place.append("launcher/e.jsonl", [*reversed(launchers), *nodes])
    place.append("launcher/e.jsonl", [event("LAUNCHER-1", 0), event("publish-x-1", 0)])
    found = list(place.events("launcher"))
    assert [e for e in found if e.writer != "publish-x-1"] == launchers
    assert len(found) == 4
    found = list(place.events("nodes"))
    assert [e for e in found if e.writer != "LAUNCHER-1"] == nodes
    assert len(found) == len(nodes) + 1
    query = {"folder": "nodes", "submission": "2"}
    answer = ask("GET", f"/logs/{JOB}/events", role="trainer", params=query)
    assert answer.text.count("\n") == 2600
    assert "ETT-Next" not in answer.headers


def test_odd_questions_are_refused(ask: Ask) -> None:
    queries: list[dict[str, str]] = [{}, {"folder": "replies"}]
    further = [{"submission": odd} for odd in ("x", "-1", str(2**63))]
    further += [{"after": odd} for odd in ("x", "1", "1.", "²3.w", "9" * 25 + ".w", "x" * 9999)]
    for query in [*queries, *({"folder": "nodes", **more} for more in further)]:
        answer = ask("GET", f"/logs/{JOB}/events", role="trainer", params=query)
        assert answer.status_code == 422, query
        assert isinstance(answer.json()["detail"], str)


def test_what_is_sent_does_not_reach_the_servers_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """The log's readers are not the job's."""
    place = api.storage(JOB, patience_s=1)
    place.write("replies/b", b"hunter2")
    api.store.write(lambda connection: connection.execute(text("DROP TABLE ett_file")))
    with pytest.raises(OSError, match="503"):
        place.write("replies/a", b"hunter2")
    assert "INSERT INTO ett_file" in caplog.text
    assert "hunter2" not in caplog.text
    assert api.token(JOB)() not in caplog.text
