"""The fleet page as a reader gets it: the Dags that they may read, and nothing of any other."""

import html
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("airflow.api_fastapi")

from fastapi.testclient import TestClient

from airflow_ett.fleet import roll_up
from airflow_ett.store import Store, open_store, upgrade
from airflow_ett.ui.app import create_app
from airflow_ett.ui.depends import current_store, get_user

Make = Callable[..., dict[str, Any]]
S = 10**9
HOSTILE = '"><script>alert(1)</script>$bg{{7*7}}\u202e'
JANUARY = "?since=2026-01-01&until=2026-01-10"


class Manager:
    """An auth manager under which the user may read the runs of ``dag_ids``."""

    dag_ids: set[str]

    def get_authorized_dag_ids(self, *, user: Any, method: str) -> set[str]:
        return self.dag_ids

    def batch_is_authorized_dag(self, requests: Any, *, user: Any) -> bool:
        return all(request["details"].id in self.dag_ids for request in requests)


class Fleet:
    """The app over a store of made-up jobs."""

    def __init__(self, url: str, manager: Manager, keep: Callable[..., None], make: Make) -> None:
        upgrade(url)
        self.store = open_store(url)
        self._manager = manager
        self._keep = keep
        self._make = make
        self._number = 0

    def job(
        self, day: date, dag_id: str = "ranker", *, make: Make | None = None, **changes: Any
    ) -> None:
        """Keep a job that ended at noon of a day, as ``make`` reports it."""
        self._number += 1
        length = changes.get("wall_ns", 1000 * S)
        end_ns = int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp()) * S
        names = {"job": f"{self._number:020}", "run_id": f"r{self._number}", "dag_id": dag_id}
        report = (make or self._make)(begin_ns=end_ns - length, **names | changes)
        self._keep(self.store, report | {"attempts": [{}, {}]})

    def page(self, query: str = JANUARY, *, may_read: tuple[str, ...] = ("ranker",)) -> str:
        """Return the page of who may read these Dags."""
        self._manager.dag_ids = set(may_read)
        app = create_app()
        app.dependency_overrides[current_store] = self._opened
        app.dependency_overrides[get_user] = lambda: SimpleNamespace(get_name=lambda: "anna")
        answer = TestClient(app, raise_server_exceptions=False).get(f"/fleet{query}")
        assert answer.status_code == 200, answer.text
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        return answer.text

    def _opened(self) -> Store:
        return self.store


@pytest.fixture
def fleet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep_report: Callable[..., None], report: Make
) -> Iterator[Fleet]:
    manager = Manager()
    monkeypatch.setattr("airflow_ett.api.access.get_auth_manager", lambda: manager)
    fleet = Fleet(f"sqlite:///{tmp_path}/ett.db", manager, keep_report, report)
    yield fleet
    fleet.store.close()


def _text(page: str) -> str:
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def _figure(page: str, name: str) -> Any:
    return json.loads(page.split(f'id="{name}-fig">', 1)[1].split("</script>", 1)[0])


def _dags(page: str) -> list[str]:
    """Return the Dags of the table, as they stand there."""
    return re.findall(r'href="\.\./dags/([^/"]+)/plugin/ett"', page)


def _bad(dag_id: str = "ranker") -> dict[str, Any]:
    """What makes a job one of 80%."""
    parts = {"effective": 800 * S, "wasted": 150 * S, "scheduling": 50 * S}
    return {"effective_ns": 800 * S, "ett_pct": 80.0, "components_ns": parts, "dag_id": dag_id}


def test_the_page_says_how_the_fleet_did(fleet: Fleet, silent: Make) -> None:
    fleet.job(date(2025, 12, 28), **_bad())
    fleet.job(date(2026, 1, 3))
    fleet.job(date(2026, 1, 5))
    fleet.job(date(2026, 1, 5), make=silent)
    fleet.job(date(2026, 1, 6), state="running", frozen=False)
    text = _text(fleet.page())
    assert "ETT%, accelerator-hour weighted 84.0% Before: 80.0% +4.0 points" in text
    assert "Held 87.5% · per job 84.0%" in text
    assert "Lost accelerator-hours 0.5 of 4.3 held Before: 0.4" in text
    assert "Failures per 100 attempts 33.3 0.0 without preemptions Before: 50.0" in text
    assert "Time to start (TTS), mean 50.0 s Before: 50.0 s" in text
    assert "3 jobs 1 Dag you may see 1 job without ETT% 1 running now, not counted" in text
    assert "Jan 1, 2026 – Jan 10, 2026, per day in UTC" in text
    assert "The gain of +4.0 points splits into Wasted +11.0, PT2 compile −3.0" in text
    assert "0.5 while accelerators were held, 0.2 while none were" in text
    assert "Wasted checkpointing" in text


def test_a_table_stands_behind_every_chart(fleet: Fleet, silent: Make) -> None:
    fleet.job(date(2026, 1, 3))
    fleet.job(date(2026, 1, 5), make=silent)
    page = fleet.page()
    text = _text(page)
    assert page.count("<summary>Show as table</summary>") == len(re.findall('class="chart"', page))
    assert "Jan 3, 2026 1 84.0% 84.0%" in text
    assert "Jan 5, 2026 1 – –" in text
    assert "Preempted 1 25.0 –" in text
    trend = _figure(page, "trend")["data"][0]
    assert trend["x"][2] == "2026-01-03"
    assert trend["y"][2] == pytest.approx(84)
    assert len(trend["x"]) == 10
    assert _figure(page, "causes")["layout"]["yaxis"]["ticktext"] == ["Preempted"]
    bars = [t for t in _figure(page, "lost")["data"] if t["type"] == "bar"]
    assert sum(t["y"][2] for t in bars) == pytest.approx(8 * 160 / 3600)


def test_only_the_dags_that_the_user_may_read_count(fleet: Fleet) -> None:
    fleet.job(date(2026, 1, 3))
    fleet.job(date(2026, 1, 3), **_bad("secret"))
    mine = fleet.page()
    assert _dags(mine) == ["ranker"]
    assert "secret" not in mine
    assert "weighted 84.0%" in _text(mine)
    both = fleet.page(may_read=("ranker", "secret", "never_ran"))
    assert _dags(both) == ["secret", "ranker"]
    assert "weighted 82.0%" in _text(both)
    assert "2 Dags you may see" in _text(both)


def test_the_rollup_changes_the_notice_alone(fleet: Fleet) -> None:
    fleet.job(date(2025, 12, 28), **_bad())
    fleet.job(date(2026, 1, 3))
    before = fleet.page()
    assert "The Dag ett_fleet_rollup has not run." in _text(before)
    roll_up(fleet.store, timezone="UTC")
    after = fleet.page()
    assert "ett_fleet_rollup" not in after
    notice = re.search(r'<div class="notice.*?</div></div>\n', before, re.DOTALL)
    assert notice
    assert before.replace(notice.group(), "").split() == after.split()


def test_a_fleet_that_has_measured_nothing(fleet: Fleet) -> None:
    fleet.job(date(2026, 1, 3), dag_id="secret")
    for may_read in (("ranker",), ()):
        text = _text(fleet.page(may_read=may_read))
        assert "No Dag you may see has measured a training" in text
        assert "secret" not in text


def test_a_period_in_which_nothing_ended_leads_to_one_that_has(fleet: Fleet) -> None:
    fleet.job(date(2025, 11, 20))
    fleet.job(date(2025, 12, 1), dag_id="secret")
    fleet.job(date(2026, 1, 6), state="running", frozen=False)
    page = fleet.page(f"{JANUARY}&clock=held")
    text = _text(page)
    assert "No job ended in this period: Jan 1, 2026 – Jan 10, 2026" in text
    assert "1 is running now." in text
    assert 'name="since" value="2026-01-01"' in page
    assert "on Nov 20, 2025" in text
    link = re.search(r'class="btn" href="([^"]+)"', page)
    assert link
    found = _text(fleet.page(html.unescape(link.group(1))))
    assert "weighted, held 87.5%" in found
    assert "Oct 22, 2025 – Nov 20, 2025" in found


def test_a_fleet_that_only_runs(fleet: Fleet) -> None:
    fleet.job(date(2026, 1, 6), state="running", frozen=False)
    text = _text(fleet.page())
    assert "No job ended in this period" in text
    assert "The 30 days up to" not in text


def test_the_clock_changes_ett_and_not_the_losses(fleet: Fleet) -> None:
    fleet.job(date(2026, 1, 3))
    wall, held = fleet.page(), fleet.page(f"{JANUARY}&clock=held")
    text = _text(held)
    assert "accelerator-hour weighted, held 87.5%" in text
    assert "From submission 84.0%" in text
    assert _figure(held, "trend")["data"][0]["y"][2] == pytest.approx(87.5)
    assert _figure(held, "lost") == _figure(wall, "lost")
    assert 'aria-current="true">Accelerators held' in held
    assert 'aria-current="true">From submission' in wall


def test_what_publishing_apart_released_stands_beside_what_was_lost(fleet: Fleet) -> None:
    fleet.job(date(2026, 1, 3), released_ns=3600 * S)
    fleet.job(date(2026, 1, 4), ett_pct=None, released_ns=900 * S)
    fleet.job(date(2026, 1, 4), dag_id="secret", released_ns=9000 * S)
    assert "10 released by publishing apart" in _text(fleet.page())


def test_without_accelerators_time_is_lost_not_hours(fleet: Fleet) -> None:
    fleet.job(date(2026, 1, 3), accelerators=0)
    text = _text(fleet.page())
    assert "ETT%, wall-clock weighted 84.0%" in text
    assert "Lost time 2 m 00 s of 16 m 00 s held" in text
    assert "ccelerator-hour" not in text
    assert "released" not in text


def test_more_dags_on_request_and_in_another_order(fleet: Fleet) -> None:
    names = [f"dag_{number:02}" for number in range(16)]
    for number, dag_id in enumerate(names):
        fleet.job(date(2026, 1, 3), dag_id=dag_id, accelerators=1 + number)
    may_read = tuple(names)
    first = fleet.page(may_read=may_read)
    assert _dags(first) == names[:1:-1]
    assert "14 of 16" in first
    more = re.search(r'href="([^"]+)">Show all 16 Dags', first)
    assert more
    every = fleet.page(html.unescape(more.group(1)).partition("#")[0], may_read=may_read)
    assert _dags(every) == names[::-1]
    assert "Show all" not in every
    assert _dags(fleet.page(f"{JANUARY}&sort=dag", may_read=may_read)) == names[:14]
    head = re.search(r'<th [^>]*aria-sort="none"><a href="([^"]+)">Dag</a>', first)
    assert head
    link = html.unescape(head.group(1)).partition("#")[0]
    assert _dags(fleet.page(link, may_read=may_read)) == names[:14]


def test_a_name_is_text(fleet: Fleet) -> None:
    fleet.job(date(2026, 1, 3), dag_id=HOSTILE, nof_by_cause={HOSTILE: 1})
    page = fleet.page(may_read=(HOSTILE,))
    assert "<script>alert" not in page
    assert HOSTILE.capitalize() in html.unescape(page)
    assert "$bg49" not in page
    for name in ("trend", "lost", "causes"):
        _figure(page, name)
    assert "<script>" not in json.dumps(_figure(page, "causes"))


def test_links_keep_the_base_path_and_open_in_the_top_window(fleet: Fleet) -> None:
    fleet.job(date(2026, 1, 3), dag_id="a/b c")
    page = fleet.page(f"{JANUARY}&clock=held&sort=ett", may_read=("a/b c",))
    links = [html.unescape(link) for link in re.findall(r'(?:href|src|action)="([^"]*)"', page)]
    assert not [link for link in links if link.startswith("/") or "://" in link]
    assert "../dags/a%2Fb%20c/plugin/ett" in links
    assert page.count('target="_top"') == 1
    period = "days=10&until=2026-01-10"
    assert f"api/v1/fleet/days?{period}&format=csv" in links
    assert f"api/v1/fleet/dags?{period}&limit=500&format=csv" in links
    for link in links:
        if link.startswith("?"):
            assert "since=2026-01-01&until=2026-01-10" in link


def test_the_days_are_those_of_the_configured_zone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__TIMEZONE", "Pacific/Auckland")
    fleet.job(date(2026, 1, 3))
    page = fleet.page()
    assert "per day in Pacific/Auckland" in _text(page)
    assert _figure(page, "trend")["data"][0]["y"][3] == pytest.approx(84)


def test_the_last_days_are_up_to_today(fleet: Fleet) -> None:
    today = datetime.now(ZoneInfo("UTC")).date()
    for ago in (0, 6, 7, 29, 30):
        fleet.job(today - timedelta(days=ago))
    assert "2 jobs 1 Dag" in _text(fleet.page("?period=7days"))
    assert "4 jobs 1 Dag" in _text(fleet.page(""))
    assert '<option value="30days" selected>' in fleet.page("?period=nonsense")
