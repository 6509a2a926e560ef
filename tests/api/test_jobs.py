"""The list of jobs, one job, and its events."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("airflow.api_fastapi")

from sqlalchemy import update

from airflow_ett.api import cursors
from airflow_ett.api.tables import csv_text
from airflow_ett.events import AttemptId, JobKey, Kind, LogWriter, decode
from airflow_ett.store import ingest_root, open_store, queries, tables, upgrade
from tests.api.conftest import BEGIN, SECRET_DAG, S

Client = Callable[..., Any]
DAY = 86_400 * S


def _runs(answer: Any) -> list[str]:
    return [job["run_id"] for job in answer.json()["jobs"]]


def test_jobs_come_newest_first_with_units_that_add_up(client: Client) -> None:
    page = client("anna").get("/api/v1/jobs").json()
    assert page["next"] is None
    assert [job["run_id"] for job in page["jobs"]] == [f"run-{day}" for day in (4, 3, 2, 1, 0)]
    job = page["jobs"][1]
    assert (job["state"], job["frozen"], job["attempts"], job["nof"]) == ("succeeded", True, 2, 1)
    assert job["nof_by_cause"] == {"application": 1}
    assert sum(job["components_ns"].values()) == job["wall_ns"] == job["end_ns"] - job["begin_ns"]
    assert job["ett_pct"] == pytest.approx(100 * job["effective_ns"] / job["wall_ns"])
    assert (job["recoveries"], job["ttr_ns"]) == (1, 40 * S)


@pytest.mark.parametrize(
    ("query", "runs"),
    [
        ({"run_id": "run-2"}, ["run-2"]),
        ({"task_id": "other"}, []),
        ({"state": "running"}, []),
        ({"state": ["succeeded", "failed"], "limit": 2}, ["run-3", "run-2"]),
        ({"dag_id": ["ranker", "no-such-dag"], "limit": 1}, ["run-4"]),
        ({"since": str(BEGIN + 3 * DAY)}, ["run-4", "run-3"]),
        ({"since": "2026-09-24T14:13:20Z", "until": "2026-09-25T16:13:20+02:00"}, ["run-3"]),
        ({"until": BEGIN + 1}, ["run-0"]),
    ],
)
def test_filters(client: Client, query: dict[str, Any], runs: list[str]) -> None:
    answer = client("anna").get("/api/v1/jobs", params=query)
    if query == {"state": "running"}:
        # Nothing has been heard of it for long: it stays open, and is no failure.
        runs = ["run-4"]
    assert _runs(answer) == runs


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "since=yesterday",
        "since=2026-09-24T14:13:20",
        "since=-1",
        f"since={2**63}",
        "since=0001-01-01T00:00:00Z",
        "state=succeded",
        "run_id=" + "x" * 251,
        "run_id=a%00b",
        "cursor=x",
        "cursor=" + "A" * 3000,
        "cursor=WzEsMl0",
        "cursor=bnVsbA",
        "format=xml",
        "dag_id=x&" * 501,
    ],
)
def test_what_cannot_be_used_is_named_and_not_repeated(client: Client, query: str) -> None:
    answer = client("anna").get(f"/api/v1/jobs?{query}")
    assert answer.status_code == 422
    name, _, value = query.partition("=")
    assert f"query.{name}" in answer.json()["detail"]
    assert len(value) < 4 or value not in answer.text


def test_pages_are_stable_while_jobs_are_added(
    client: Client, root_folder: Path, write_job: Callable[..., Any], monkeypatch: Any
) -> None:
    url = f"sqlite:///{root_folder.parent}/own.db"
    upgrade(url)
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", url)
    store = open_store(url)
    for number in range(7):
        # Three of them began in the same instant.
        begin = BEGIN + max(0, number - 2) * DAY
        write_job(root_folder, run_id=f"run-{number}", begin_ns=begin)
    ingest_root(store, root_folder)
    whole = _runs(client("anna").get("/api/v1/jobs"))
    seen: list[str] = []
    cursor = None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = client("anna").get("/api/v1/jobs", params=params).json()
        seen += [job["run_id"] for job in page["jobs"]]
        write_job(root_folder, run_id=f"new-{len(seen)}", begin_ns=BEGIN + 90 * DAY)
        ingest_root(store, root_folder)
        cursor = page["next"]
        if cursor is None:
            break
    store.close()
    assert seen == whole
    assert len(set(seen)) == 7


def test_one_job_with_all_that_is_known(client: Client, jobs: dict[str, str]) -> None:
    job = jobs["ranker run-0"]
    found = client("anna").get(f"/api/v1/jobs/{job}").json()
    assert found["job"]["job"] == job
    assert [one["handle"] for one in found["submissions"]] == [
        "local_detached://x/1",
        "local_detached://x/2",
    ]
    first, second = found["attempts"]
    assert (first["cause"], first["evidence"]["exit_code"], second["cause"]) == (
        "application",
        1,
        None,
    )
    for attempt in (first, second):
        total = sum(phase["ns"] for phase in attempt["phases"])
        assert total == attempt["end_ns"] - attempt["begin_ns"]
    assert [one["cursor"] for one in found["checkpoints"]] == [600, 1000]
    (published,) = found["publishes"]
    assert (published["version"], published["uri"]) == ("7", "https://registry.example/ranker/7")
    assert (published["registry"], published["bytes"]) == ("https://registry.example/ranker", 4096)
    assert (published["existed"], published["released_ns"]) == (False, 30 * S)
    assert found["job"]["released_ns"] == found["result"]["released_ns"] == 30 * S
    assert "hush" not in str(found)
    assert found["result"]["phases_ns"]["train"] == found["job"]["effective_ns"]
    assert found["result"]["revision"] == 1


def test_what_became_of_the_levers_stands_with_each_attempt(
    client: Client, root_folder: Path, write_job: Callable[..., Any], monkeypatch: Any
) -> None:
    url = f"sqlite:///{root_folder.parent}/levers.db"
    upgrade(url)
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", url)
    run = write_job(root_folder.parent / "levers", run_id="levers")
    job = JobKey("default", "ranker", "levers", "train").id
    log = LogWriter(run.nodes / "t.jsonl", job=job, writer="t", attempt=AttemptId(2), rank=0)
    log.append(Kind.LEVER, {"lever": "compile_cache", "outcome": "missed", "reason": "cold \ud800"})
    log.close()
    store = open_store(url)
    ingest_root(store, root_folder.parent / "levers")
    store.close()
    first, second = client("anna").get(f"/api/v1/jobs/{job}").json()["attempts"]
    assert first["levers"] == []
    facts = {"duration_ns": None, "bytes": None, "rank": 0}
    told = {"lever": "compile_cache", "outcome": "missed", "reason": "cold \ud800"}
    assert second["levers"] == [told | facts]


def test_addresses_are_told_without_passwords(
    client: Client, root_folder: Path, write_job: Callable[..., Any], monkeypatch: Any
) -> None:
    url = f"sqlite:///{root_folder.parent}/own.db"
    upgrade(url)
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", url)
    write_job(root_folder)
    store = open_store(url)
    ingest_root(store, root_folder)
    (row,) = queries.jobs(store)
    secret = "s3cret-word"
    said = {"text": f"cannot read s3://me:{secret}@bucket/x, nor https://c/?token={secret}"}
    row.result["attempts"][0]["evidence"] = {"deep": [said]}
    row.result["handle"] = f"slurm://me:{secret}@cluster/7"
    changes = (update(tables.attempt).values(evidence=said), update(tables.job))
    store.write(lambda connection: connection.execute(changes[0]))
    store.write(lambda connection: connection.execute(changes[1].values(result=row.result)))
    store.close()
    found = client("anna").get(f"/api/v1/jobs/{row.job}")
    assert secret not in found.text
    assert found.json()["result"]["handle"] == "slurm://cluster/7"
    assert "s3://bucket/x," in found.json()["attempts"][0]["evidence"]["text"]


def test_events_are_the_logs_lines_page_by_page(client: Client, jobs: dict[str, str]) -> None:
    address = f"/api/v1/jobs/{jobs['ranker run-0']}/events"
    whole = client("anna").get(address, params={"limit": 500}).json()
    assert whole["next"] is None
    events = [decode(json.dumps(event)) for event in whole["events"]]
    assert {event.kind for event in events} >= {"job_opened", "interval", "job_ended"}
    seen, cursor = [], None
    while True:
        params = {"limit": 7} | ({"cursor": cursor} if cursor else {})
        page = client("anna").get(address, params=params).json()
        seen += page["events"]
        if (cursor := page["next"]) is None:
            break
    assert seen == whole["events"]


def test_events_as_json_lines_tell_where_to_go_on(client: Client, jobs: dict[str, str]) -> None:
    address = f"/api/v1/jobs/{jobs['ranker run-0']}/events"
    for asked in ({"params": {"format": "jsonl"}}, {"headers": {"Accept": "application/jsonl"}}):
        answer = client("anna").get(address, **asked)
        assert answer.headers["content-type"] == "application/jsonl"
        assert len([decode(line) for line in answer.text.splitlines()]) > 10
        assert "link" not in answer.headers
    answer = client("anna").get(address, params={"format": "jsonl", "limit": 2})
    following = answer.headers["link"].partition("<?")[2].partition(">")[0]
    rest = client("anna").get(f"{address}?{following}")
    assert rest.text.splitlines()[0] not in answer.text
    assert len(rest.text.splitlines()) == 2


def test_a_cursor_of_another_list_is_refused(client: Client, jobs: dict[str, str]) -> None:
    events = cursors.encode(("launcher-1", 1))
    assert client("anna").get(f"/api/v1/jobs?cursor={events}").status_code == 422
    address = f"/api/v1/jobs/{jobs['ranker run-0']}/events"
    assert client("anna").get(f"{address}?cursor={cursors.encode((1, 'x'))}").status_code == 422


def test_a_csv_has_the_same_rows(client: Client) -> None:
    page = client("anna").get("/api/v1/jobs").json()["jobs"]
    for asked in ({"params": {"format": "csv"}}, {"headers": {"Accept": "text/csv;q=0.9, */*"}}):
        answer = client("anna").get("/api/v1/jobs", **asked)
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert answer.headers["content-disposition"] == 'attachment; filename="jobs.csv"'
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert [row["job"] for row in rows] == [job["job"] for job in page]
        assert int(rows[0]["wasted_ns"]) == page[0]["components_ns"]["wasted"]
        assert answer.text.count("\r\n") == len(rows) + 1
    first = client("anna").get("/api/v1/jobs?format=csv&limit=1")
    assert 'rel="next"' in first.headers["link"]


def test_no_cell_is_a_formula() -> None:
    texts = ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "＝1", 'a"b', "a,b", "a\nb", "plain"]
    rows = [{"text": text, "number": -1, "none": None, "yes": True} for text in texts]
    read = list(csv.reader(io.StringIO(csv_text(rows, ["text", "number", "none", "yes"]))))
    assert [row[0] for row in read[1:]] == [
        *("'=1+1", "'+1", "'-1", "'@x", "'\t=1", "'\r=1", "'＝1"),
        *('a"b', "a,b", "a\nb", "plain"),
    ]
    assert read[1][1:] == ["-1", "", "true"]


HOSTILE = [
    '"><script>alert(1)</script>',
    "' OR '1'='1",
    '"; DROP TABLE ett_job; --',
    "../../../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "\u202egnp.exe",
    "日本語 🚀",
    "=cmd|' /C calc'!A0",
    "a\nb\r\nSet-Cookie: x=1",
    "%00",
    "\0",
    "x" * 250,
    "x" * 5000,
    "{{7*7}}",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "%",
    "_",
    "~",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_every_filter_and_name_takes_any_text(client: Client, text: str) -> None:
    anna = client("anna")
    listed = "/api/v1/jobs"
    for name in ("run_id", "task_id", "dag_id"):
        answer = anna.get(listed, params={name: text})
        assert answer.status_code == (422 if "\0" in text or len(text) > 250 else 200)
        assert answer.status_code == 422 or answer.json()["jobs"] == []
    for name in ("state", "since", "until", "cursor", "limit", "format"):
        assert anna.get(listed, params={name: text}).status_code == 422
    for address in ("/api/v1/jobs/{}", "/api/v1/jobs/{}/events", "/api/v1/dags/{}/summary"):
        answer = anna.get(address.format(quote(text, safe="")))
        assert answer.status_code in (403, 404, 422)
        assert answer.headers["content-type"] == "application/json"
        assert "set-cookie" not in answer.headers
        assert "SQL" not in answer.text
    page = anna.get(f"/dag/{quote(text, safe='')}")
    assert page.status_code in (403, 404, 422)
    assert "<script>alert" not in page.text or page.headers["content-type"] == "application/json"


@pytest.mark.parametrize("text", [text for text in HOSTILE if len(text) <= 250])
def test_hostile_names_that_are_stored_come_back_as_text(
    client: Client,
    manager: Any,
    root_folder: Path,
    write_job: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
) -> None:
    url = f"sqlite:///{root_folder.parent}/own.db"
    upgrade(url)
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", url)
    run = write_job(root_folder, dag_id=text, run_id=text, task_id=text, ended=False)
    job = json.loads(next(iter(run.logs())).read_text().splitlines()[0])["job"]
    log = LogWriter(run.launcher / "odd.jsonl", job=job, writer=f"{text} odd".replace("\0", ""))
    evidence = {"text": "\ud800\0" + text, "exit_code": 1}
    log.append("attempt_ended", {"cause": "\ud800", "evidence": evidence}, time_ns=BEGIN + 95 * S)
    log.close()
    store = open_store(url)
    assert ingest_root(store, root_folder).jobs == (job,)
    dag_id = queries.jobs(store)[0].dag_id
    store.close()
    manager.rights["anna"] = {dag_id}
    anna = client("anna")
    assert anna.get("/api/v1/jobs").json()["jobs"][0]["dag_id"] == dag_id
    assert anna.get("/api/v1/jobs?format=csv").status_code == 200
    if not dag_id:
        # What names no DAG is of none that anybody may read.
        assert anna.get(f"/api/v1/jobs/{job}").status_code == 404
        return
    assert anna.get(f"/api/v1/jobs/{job}").json()["job"]["run_id"] == dag_id
    for number in range(1, 4):
        page = anna.get(f"/api/v1/jobs/{job}/events", params={"limit": number}).json()
        after = {"cursor": page["next"], "limit": 500}
        assert anna.get(f"/api/v1/jobs/{job}/events", params=after).status_code == 200
    assert anna.get("/api/v1/fleet/dags").json()["dags"][0]["dag_id"] == dag_id
    assert anna.get("/metrics").text.endswith("# EOF\n")
    # The test's client decodes a path twice.
    if dag_id and "/" not in dag_id and "%" not in dag_id:
        summary = anna.get(f"/api/v1/dags/{quote(dag_id, safe='')}/summary")
        assert summary.json()["running"] == 1


def test_phases_add_up_to_the_wall_clock(client: Client, jobs: dict[str, str]) -> None:
    job = jobs["ranker run-0"]
    told = client("anna").get(f"/api/v1/jobs/{job}").json()["job"]
    page = client("anna").get(f"/api/v1/jobs/{job}/phases").json()
    assert page["job"] == job
    assert sum(phase["ns"] for phase in page["phases"]) == told["wall_ns"]
    assert {phase["submission"] for phase in page["phases"]} == {1, 2}
    for component, ns in told["components_ns"].items():
        assert sum(p["ns"] for p in page["phases"] if p["component"] == component) == ns


def test_phases_as_csv_have_their_owners(
    client: Client, jobs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__COMPONENT_OWNERS", "wasted==night-shift")
    path = f"/api/v1/jobs/{jobs['ranker run-0']}/phases"
    answer = client("anna").get(path, headers={"Accept": "text/csv"})
    assert answer.headers["content-disposition"] == 'attachment; filename="phases.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [*rows[0]][-4:] == ["phase", "component", "owner", "ns"]
    owners = {row["component"]: row["owner"] for row in rows}
    assert (owners["wasted"], owners["effective"]) == ("'=night-shift", "model")


def test_a_job_without_a_dag_is_nobodys(
    client: Client, manager: Any, jobs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log lacks the opened event. To an auth manager no DAG is any DAG."""
    monkeypatch.setattr(manager, "is_authorized_dag", lambda **asked: not asked["details"].id)
    monkeypatch.setattr("airflow_ett.store.queries.dag_of", lambda store, job, dags: "")
    for path in ("", "/events", "/events?dag_id=ranker", "/phases"):
        assert client("anna").get(f"/api/v1/jobs/{jobs['ranker run-0']}{path}").status_code == 404


def test_a_job_that_is_none_costs_as_much_as_a_hidden_one(
    client: Client, manager: Any, jobs: dict[str, str]
) -> None:
    """Else the time to the 404 would tell which runs of other DAGs exist."""
    asked = []
    for job in (jobs[f"{SECRET_DAG} run-0"], "0" * 20):
        manager.asked.clear()
        assert client("anna").get(f"/api/v1/jobs/{job}").status_code == 404
        asked.append(len(manager.asked))
    assert asked == [1, 1]


def test_the_hidden_dag_is_there_at_all(client: Client) -> None:
    assert SECRET_DAG in client("root").get("/api/v1/jobs").text
