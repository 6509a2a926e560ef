"""The tab itself: from an address to a page, with a real store below."""

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode

import pytest

pytest.importorskip("airflow.api_fastapi")

from fastapi.testclient import TestClient
from sqlalchemy import delete, update

from airflow_ett.events import JobKey
from airflow_ett.store import Store, ingest_root, open_store, tables, upgrade
from airflow_ett.ui.app import create_app
from airflow_ett.ui.depends import current_store, get_user
from tests.ui.gallery import jobs
from tests.ui.gallery.names import HOSTILE
from tests.ui.gallery.story import Story
from tests.ui.run.conftest import NOW

SECOND = 10**9
Get = Callable[..., str]


def _trained(
    key: JobKey,
    begin_ns: int = NOW,
    *,
    saves: int = 1,
    failures: int = 0,
    accelerators: int = 8,
) -> Story:
    story = Story(key, begin_ns, accelerators=accelerators)
    for number in range(failures + 1):
        story.submit("relaunch" if number else "first")
        story.allocate(20, 10)
        story.boot("node-7", 5)
        for _ in range(saves):
            story.train(60)
            story.save(2, 1)
        if number < failures:
            story.fail("preempted", 5, "slurm: PREEMPTED", replica=0)
    story.train(60)
    story.finish()
    return story


class Shelf:
    """A store with the jobs that a test puts there."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "runs"
        url = f"sqlite:///{folder}/ett.db"
        upgrade(url)
        self.store: Store = open_store(url)

    def put(self, *stories: Story) -> None:
        for story in stories:
            story.write(self._root)
        assert not ingest_root(self.store, self._root).problems


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path)
    yield shelf
    shelf.store.close()


@pytest.fixture
def get(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Get:
    """Ask for the tab: ``get("ranker", run_id="r")`` is the page's HTML."""
    manager = SimpleNamespace(is_authorized_dag=lambda **asked: True)
    monkeypatch.setattr("airflow.api_fastapi.core_api.security.get_auth_manager", lambda: manager)
    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", lambda dag_id: None)
    app = create_app()
    app.dependency_overrides[current_store] = lambda: shelf.store
    app.dependency_overrides[get_user] = lambda: SimpleNamespace(get_name=lambda: "anna")
    client = TestClient(app, raise_server_exceptions=False)

    def ask(dag_id: str, query: str = "", zone: str = "UTC", **parts: Any) -> str:
        client.cookies.set("ett_zone", zone)
        address = query or f"?{urlencode(parts, doseq=True)}"
        answer = client.get(f"/run/{quote(dag_id, safe='')}{address}")
        assert answer.status_code == 200, answer.text
        return answer.text

    return ask


def _text(page: str) -> str:
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())
    return text.replace("\u00a0", " ")


def _links(page: str) -> dict[str, str]:
    found = re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', page)
    return {html.unescape(text): html.unescape(href) for href, text in found}


def _key(**changes: Any) -> JobKey:
    names = {"deployment": "default", "dag_id": "ranker", "run_id": "r", "task_id": "train"}
    return JobKey(**(names | changes))


def test_a_run_that_has_not_trained_yet_waits_for_it(get: Get) -> None:
    page = get("ranker", run_id="r")
    assert "This run has not started a training yet." in page
    assert "../pulse/ranker?run_id=r" in html.unescape(page)


def test_the_only_job_of_a_run_opens_straight_away(shelf: Shelf, get: Get) -> None:
    shelf.put(_trained(_key(), failures=1))
    page = get("ranker", run_id="r")
    text = _text(page)
    assert "ETT%, from submission" in text
    assert "The wall clock as one sum" in text
    assert "Timeline" in text
    for words in ("Attempts", "Phases by attempt", "Checkpoints"):
        assert f">{words}</h2>" in page
    assert ">Compile</h2>" not in page
    assert ">Published versions</h2>" not in page
    assert "../timeline/ranker?job=" in html.unescape(page)
    # It has ended, and so nothing asks for more.
    assert "../pulse/" not in page


def test_what_was_published_stands_with_what_that_released(shelf: Shelf, get: Get) -> None:
    story = _trained(_key())
    for number in range(8):
        story.publish(f"v{number}", f"https://me:hush@models.example/{number}", seconds=450)
    shelf.put(story)
    page = get("ranker", run_id="r")
    text = _text(page)
    assert "8.0 accelerator-hours released; shutdown held 0.0" in text
    assert "v7 ranker 4.9 M" in text
    assert "7 m 30 s 14.0 GiB 1.0 https://models.example/7" in text
    assert '<a href="https://models.example/7" target="_top">' in page
    assert "hush" not in page
    assert "v0" not in text
    assert "Show all 8" in text
    assert "v0" in _text(get("ranker", run_id="r", show="versions"))


def test_a_version_that_was_there_took_no_time_that_counts(shelf: Shelf, get: Get) -> None:
    story = _trained(_key())
    story.publish(existed=True)
    shelf.put(story)
    text = _text(get("ranker", run_id="r"))
    assert "was there 14.0 GiB 0.0 models://ranker/184" in text
    assert "0.0 accelerator-hours released" in text


def test_without_accelerators_nothing_is_released(shelf: Shelf, get: Get) -> None:
    story = _trained(_key(), accelerators=0)
    story.publish()
    shelf.put(story)
    text = _text(get("ranker", run_id="r"))
    assert "Published versions" in text
    assert "eleased" not in text


def test_a_task_instance_opens_its_own_job(shelf: Shelf, get: Get) -> None:
    shelf.put(
        _trained(_key()),
        *(_trained(_key(task_id="tune", map_index=index)) for index in range(2)),
    )
    unmapped = get("ranker", run_id="r", task_id="train", map_index="{MAP_INDEX}")
    assert "<h1>train</h1>" in unmapped
    assert "<h1>tune[1]</h1>" in get("ranker", run_id="r", task_id="tune", map_index="1")
    assert "started no training" in get("ranker", run_id="r", task_id="tune", map_index="9")


def test_a_task_that_trains_nothing_leads_to_its_run(shelf: Shelf, get: Get) -> None:
    shelf.put(_trained(_key()))
    page = get("ranker", run_id="r", task_id="publish")
    assert "This task has started no training in this run." in page
    assert 'href="../../dags/ranker/runs/r/plugin/ett-run"' in page
    assert 'data-every="30"' in page


def test_several_jobs_are_chosen_from(shelf: Shelf, get: Get) -> None:
    shelf.put(
        _trained(_key(), failures=2),
        *(_trained(_key(task_id="tune", map_index=index)) for index in range(2)),
    )
    page = get("ranker", run_id="r")
    assert "Trainings of this run" in page
    links = _links(page)
    assert list(links) == ["train", "tune[0]", "tune[1]"]
    opened = get("ranker", query=links["tune[1]"])
    assert "<h1>tune[1]</h1>" in opened
    assert _links(opened)["All trainings of this run"] == "?run_id=r"
    assert _text(page).count("Success") == 3


def test_earlier_generations_are_a_link_away(shelf: Shelf, get: Get) -> None:
    first, second = (
        _trained(_key(generation=number), NOW + number * 3600 * SECOND) for number in (1, 2)
    )
    shelf.put(first, second)
    links = _links(get("ranker", run_id="r"))
    (earlier,) = (name for name in links if name.startswith("Generation 1, "))
    opened = get("ranker", query=links[earlier])
    assert "Generation 1 " in _text(opened)
    assert any(name.startswith("Generation 2, ") for name in _links(opened))


def test_another_runs_job_is_not_opened(shelf: Shelf, get: Get) -> None:
    shelf.put(_trained(_key()), _trained(_key(run_id="other")))
    other = _key(run_id="other").id
    page = get("ranker", run_id="r", job=other)
    assert other not in page
    assert _key().id in page


def test_all_rows_are_shown_on_request(shelf: Shelf, get: Get) -> None:
    shelf.put(_trained(_key(), saves=5, failures=13))
    page = get("ranker", run_id="r")
    links = _links(page)
    assert {"Show all 14", "Show all 70"} <= links.keys()
    assert "9 others" in page
    every = get("ranker", query=links["Show all 70"])
    assert every.count("Committed</span>") + every.count("Upload lost</span>") == 70
    assert "Show all 70" not in every
    both = get("ranker", query=_links(every)["Show all 14"])
    assert "Show all" not in both
    assert (page.count("Preempted</span>"), both.count("Preempted</span>")) == (11, 13)


def test_a_live_job_asks_for_its_pulse(shelf: Shelf, get: Get) -> None:
    shelf.put(jobs.ending(jobs.live, _key(), NOW))
    page = get("ranker", run_id="r")
    assert "../pulse/ranker?run_id=r" in html.unescape(page)
    text = _text(page)
    assert "Provisional" in text
    assert "At risk" in text
    assert "Silent for" in text


def test_names_are_text_everywhere(shelf: Shelf, get: Get) -> None:
    for number, dag_id in enumerate((HOSTILE.replace("/", ""), "דירוג", "x" * 250)):
        key = JobKey("default", dag_id, HOSTILE, HOSTILE, number, 1)
        shelf.put(jobs.hostile(key, NOW))
        page = get(dag_id, run_id=HOSTILE)
        assert "<img" not in page
        assert "<b>x" not in page
        assert html.escape(HOSTILE).split("'")[0][:12] in page.replace("&#34;", "&quot;")
        links = re.findall(r'(?:href|src|action)="([^"]*)"', page)
        assert not [link for link in links if link.startswith("/") or "://" in link]


def test_halves_of_characters_do_not_break_the_page(shelf: Shelf, get: Get) -> None:
    story = _trained(_key())
    shelf.put(story)
    result = _result(shelf)
    result["attempts"][0]["evidence"] = {"text": "\ud800 and \u0000", "host": "\udfff"}
    result["quality_reasons"] = ["\ud83d"]
    _replace(shelf, result)
    assert "and" in get("ranker", run_id="r")


def test_an_address_that_is_none_is_left_out(shelf: Shelf, get: Get) -> None:
    shelf.put(_trained(_key()))
    _replace(shelf, _result(shelf) | {"handle": "http://[::1", "published": []})
    page = get("ranker", run_id="r")
    assert "http://[" not in page
    _replace(shelf, _result(shelf) | {"handle": "https://me:hunter2@jobs.example/7?token=abc"})
    page = get("ranker", run_id="r")
    assert _links(page)["Scheduler"].startswith("https://jobs.example/7")
    assert "hunter2" not in page


def test_pruned_events_are_told(shelf: Shelf, get: Get) -> None:
    shelf.put(_trained(_key()))
    shelf.store.write(lambda c: c.execute(update(tables.job).values(pruned_events=99)))
    shelf.store.write(lambda c: c.execute(delete(tables.event)))
    assert "The raw events of this job were pruned." in get("ranker", run_id="r")


def test_times_are_in_the_chosen_zone(shelf: Shelf, get: Get) -> None:
    shelf.put(_trained(_key(), failures=1))
    assert "Submitted 2026-11-30 00:53:20 UTC" in _text(get("ranker", run_id="r"))
    page = _text(get("ranker", run_id="r", zone="Asia/Tokyo"))
    assert "Submitted 2026-11-30 09:53:20 JST" in page
    assert "UTC" not in page


def test_owners_are_the_configured_ones(
    shelf: Shelf, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.put(_trained(_key()))
    monkeypatch.setenv("AIRFLOW__ETT__COMPONENT_OWNERS", "wasted=night-shift")
    assert "Wasted night-shift" in _text(get("ranker", run_id="r"))


def test_other_deployments_jobs_are_not_seen(
    shelf: Shelf, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.put(_trained(_key()))
    monkeypatch.setenv("AIRFLOW__ETT__DEPLOYMENT", "staging")
    assert "has not started a training" in get("ranker", run_id="r", job=_key().id)


def _result(shelf: Shelf) -> dict[str, Any]:
    with shelf.store.read() as connection:
        found: dict[str, Any] = connection.execute(tables.job.select()).one().result
    return found


def _replace(shelf: Shelf, result: dict[str, Any]) -> None:
    shelf.store.write(lambda c: c.execute(update(tables.job).values(result=result)))
