"""The Dag tab's page: its numbers, its words, its views in the address."""

import csv
import html
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from tests.ui.made_site import HOSTILE, Site, between, text_of

Make = Callable[..., dict[str, Any]]
RUN_LINK = '/plugin/ett-run" target="_top"><bdi>r'


def test_the_query_names_no_other_dag(site: Site, report: Make) -> None:
    site.keep(report(), report(job="b", dag_id="secret", run_id="not_yours"))
    assert "not_yours" not in site.client().get("/dag/ranker?dag_id=secret").text
    assert site.client().get("/dag/secret?dag_id=ranker").status_code == 403


def test_the_tab_shows_the_numbers(site: Site, report: Make, silent: Make) -> None:
    site.keep(
        report(job="b", run_id="run_b", begin_ns=2, state="running", frozen=False),
        silent(job="a", run_id="run_a", begin_ns=1, nof=0),
    )
    answer = site.client().get("/dag/ranker")
    assert answer.status_code == 200
    text = text_of(answer.text)
    assert "ETT%, accelerator-hour weighted 84.0%" in text
    assert "Held 87.5% · per job 84.0%" in text
    assert "Paper 92.0%, residual 8.0 points" in text
    assert "p50 30.0 s p90 30.0 s" in text
    assert "Running provisional" in text
    assert "1 of 2 jobs have an ETT%" in text
    assert "As of 2026-11-30" in text
    assert answer.text.count('<th scope="row"') == 7 + 2
    figure = json.loads(between(answer.text, 'id="bars-fig">', "</script>"))
    assert figure["layout"]["xaxis"]["categoryarray"] == ["run_a", "run_b"]


def test_owners_are_the_configured_ones(
    site: Site, report: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.keep(report())
    assert "night-shift" not in site.client().get("/dag/ranker").text
    monkeypatch.setenv("AIRFLOW__ETT__COMPONENT_OWNERS", "shutdown=night-shift")
    assert "Shutdown night-shift" in text_of(site.client().get("/dag/ranker").text)


def test_shares_stand_beside_exactly_100(site: Site, report: Make) -> None:
    parts = dict.fromkeys(report()["components_ns"], 1)
    site.keep(report(components_ns=parts, wall_ns=7))
    page = site.client().get("/dag/ranker").text
    shown = re.findall(r'<span class="n">([\d.]+)%</span>', page)
    assert len(shown) == 7
    assert sum(round(10 * float(share)) for share in shown) == 1000


def test_what_publishing_apart_released_stands_beside_what_was_lost(
    site: Site, report: Make
) -> None:
    hour = 3600 * 10**9
    site.keep(report(run_id="r1", job="a", released_ns=hour))
    site.keep(report(run_id="r2", job="b", released_ns=hour // 4))
    site.keep(report(run_id="r3", job="c", released_ns=None))
    text = text_of(site.client().get("/dag/ranker").text)
    assert "10 released by publishing apart" in text


def test_without_accelerators_time_is_lost_not_hours(site: Site, report: Make) -> None:
    site.keep(report(accelerators=0))
    text = text_of(site.client().get("/dag/ranker").text)
    assert "ETT%, wall-clock weighted 84.0%" in text
    assert "Lost time 2 m 00 s of 16 m 00 s held" in text
    assert "Lost time counts held time only." in text
    assert "ccelerator-hour" not in text
    assert "released" not in text


def test_names_aretext_of(site: Site, report: Make) -> None:
    site.keep(report(run_id=HOSTILE, quality="partial", quality_reasons=[HOSTILE], cause=HOSTILE))
    page = site.client().get("/dag/ranker").text
    assert "<script>alert" not in page
    assert "49" not in between(page, "Runs</h2>", "</section>")
    json.loads(between(page, 'id="bars-fig">', "</script>"))


def test_links_are_relative(site: Site, report: Make) -> None:
    site.keep(report())
    page = site.client().get("/dag/ranker").text
    links = re.findall(r'(?:href|src|action)="([^"]*)"', page)
    assert links
    assert not [link for link in links if link.startswith("/") or "://" in link]
    assert "../../dags/ranker/runs/scheduled__2026-11-29T02%3A00/plugin/ett-run" in links


def test_more_rows_on_request(site: Site, report: Make) -> None:
    site.keep(*(report(job=f"{i:02}", run_id=f"r{i}", begin_ns=100 - i) for i in range(20)))
    client = site.client()
    first = client.get("/dag/ranker").text
    assert "Show all 20 runs" in first
    assert first.count(RUN_LINK) == 12
    every = client.get("/dag/ranker?period=30runs&rows=all").text
    assert "Show all" not in every
    assert every.count(RUN_LINK) == 20


def test_a_dag_without_jobs_says_what_to_add(site: Site) -> None:
    answer = site.client().get("/dag/ranker")
    assert answer.status_code == 200
    assert "No training measured yet" in answer.text
    assert "TorchXTrainingOperator(</ins>" in answer.text
    assert "with Session() as ett:</ins>" in answer.text
    assert "# +" not in answer.text


def test_a_period_without_jobs_keeps_the_controls(site: Site, report: Make) -> None:
    site.keep(report(begin_ns=1))
    answer = site.client().get("/dag/ranker?period=7days")
    assert answer.status_code == 200
    assert "No finished or running job in this period." in answer.text
    assert '<option value="7days" selected>' in answer.text


def test_a_task_is_chosen_where_there_are_several(site: Site, report: Make) -> None:
    site.keep(report(job="a", run_id="r1"))
    assert 'name="task"' not in site.client().get("/dag/ranker").text
    site.keep(report(job="b", run_id="r1", task_id=HOSTILE, begin_ns=1))
    page = site.client().get("/dag/ranker").text
    assert "2 of 2 jobs of 1 run, newest first" in text_of(page)
    assert "All training tasks" in page
    assert "r1 · train" in page
    one = site.client().get("/dag/ranker", params={"task": HOSTILE}).text
    assert "1 of 1, newest first" in text_of(one)
    assert "r1 · train" not in one
    assert "<script>alert" not in page + one
    assert "selected>&#34;&gt;&lt;script&gt;" in one


def test_the_clock_of_held_time(site: Site, report: Make) -> None:
    site.keep(report(job="b", begin_ns=2), report(job="a", run_id="r0", begin_ns=1))
    client = site.client()
    assert 'href="?clock=held"' in client.get("/dag/ranker").text
    page = client.get("/dag/ranker?clock=held&period=7days&rows=all").text
    assert "No finished or running job" in page
    page = client.get("/dag/ranker?clock=held&rows=all").text
    text = text_of(page)
    assert "ETT% held, accelerator-hour weighted 87.5%" in text
    assert "From submission 84.0% · per job 87.5%" in text
    assert "Where the held time went" in text
    assert "Share of held time" in text
    assert '<a href="?rows=all" title="Waiting for accelerators counts">From submission</a>' in page
    assert '<a href="?clock=held&amp;rows=all" title=' in page
    assert 'aria-current="true">Accelerators held</a>' in page
    figure = json.loads(between(page, 'id="bars-fig">', "</script>"))
    assert figure["data"][0]["y"] == [87.5, 87.5]


def test_a_range_of_days_keeps_its_fields(site: Site, report: Make) -> None:
    site.keep(report())
    page = site.client().get("/dag/ranker?since=2026-11-01&until=2026-12-09&clock=held").text
    assert '<option value="custom" selected>' in page
    assert 'name="since" value="2026-11-01"' in page
    assert 'name="until" value="2026-12-09"' in page
    assert 'type="hidden" name="clock" value="held"' in page
    assert 'href="?period=custom&amp;since=2026-11-01&amp;until=2026-12-09"' in page


@pytest.mark.parametrize(
    "query",
    [
        "period=custom&since=2026-99-99&until=x",
        "since=%00&until=%F0%9F%98%80",
        "since=0001-01-01&until=9999-12-31&period=custom",
        "task=%00&clock=%ff&rows=%00&period=%ed%a0%80",
        "period=30runs&period=&since=" + "9" * 5000,
    ],
)
def test_odd_addresses_show_the_tab(site: Site, report: Make, query: str) -> None:
    site.keep(report())
    answer = site.client().get(f"/dag/ranker?{query}")
    assert answer.status_code == 200
    assert "Period" in answer.text


def test_the_change_is_told_beside_ett(site: Site, report: Make) -> None:
    parts = report()["components_ns"] | {"effective": 800 * 10**9, "wasted": 80 * 10**9}
    worse = {"effective_ns": 800 * 10**9, "ett_pct": 80.0, "components_ns": parts}
    rows = [report(job=f"{i:02}", run_id=f"r{i}", begin_ns=i) for i in range(60)]
    site.keep(*(row | worse if i < 30 else row for i, row in enumerate(rows)))
    text = text_of(site.client().get("/dag/ranker").text)
    assert "84.0% Before: 80.0% +4.0 points" in text


def test_advice_is_shown_with_its_gain_and_its_runs(site: Site, report: Make) -> None:
    slow = {"train": 500 * 10**9, "publish": 500 * 10**9}
    attempt = report()["attempts"][0] | {"cause": None, "phases_ns": slow}
    told = {"phases_ns": slow, "attempts": [attempt], "nof": 0, "ttr": [], "state": "succeeded"}
    site.keep(*(report(job=f"{i}", run_id=f"r{i}", begin_ns=i, **told) for i in range(3)))
    page = site.client().get("/dag/ranker").text
    section = between(page, 'id="h-fix"', "</section>")
    assert "Expected gain over these 3 runs" in section
    assert re.search(r"\+\d+\.\d points</b> · <b>[\d.]+ accelerator-hours", section)
    assert 'href="../guide#publish' in section
    assert 'href="../../dags/ranker/runs/r2/plugin/ett-run" target="_top"' in section
    assert "3 runs</a>" in section
    assert "publishing" in section


@pytest.mark.parametrize(
    ("accelerators", "seconds", "expected"),
    [
        (8, 500, "1.7 accelerator-hours"),
        (8, 10, "under 0.1 accelerator-hours"),
        (0, 500, "12 m 30 s less"),
    ],
    ids=["hours", "minutes", "without accelerators"],
)
def test_a_gain_is_told_in_the_pages_unit(
    site: Site, report: Make, accelerators: int, seconds: int, expected: str
) -> None:
    slow = {"train": 500 * 10**9, "data_wait": seconds * 10**9}
    attempt = report()["attempts"][0] | {"cause": None, "phases_ns": slow}
    told = {"phases_ns": slow, "attempts": [attempt], "nof": 0, "ttr": []}
    told |= {"accelerators": accelerators}
    site.keep(*(report(job=f"{i}", run_id=f"r{i}", begin_ns=i, **told) for i in range(3)))
    assert expected in text_of(site.client().get("/dag/ranker").text).replace("\u00a0", " ")


def test_without_advice_the_largest_loss_is_told(site: Site, report: Make, silent: Make) -> None:
    fine = {"train": 1000 * 10**9}
    attempt = report()["attempts"][0] | {"cause": None, "phases_ns": fine}
    site.keep(
        report(phases_ns=fine, attempts=[attempt], nof=0, ttr=[], positions_ns={"steady": {}})
    )
    text = text_of(site.client().get("/dag/ranker").text)
    assert (
        "No known fix is worth 0.1 points here. The largest loss is Scheduling, 5.0% of wall."
        in text
    )
    assert "Expected gain over this run" in text


def test_without_any_ett_nothing_is_judged(site: Site, silent: Make) -> None:
    site.keep(silent())
    text = text_of(site.client().get("/dag/ranker").text)
    assert "No job of this period has an ETT%, so there is nothing to judge." in text


def test_reasons_are_linked(site: Site, report: Make) -> None:
    site.keep(report(quality="partial", quality_reasons=[HOSTILE, "clocks disagree"]))
    page = site.client().get("/dag/ranker").text
    assert re.search(
        r'/plugin/ett-run" target="_top" title="[^"<]*clocks disagree">Partial</a>', page
    )


def test_the_file_has_the_jobs_of_the_period(
    site: Site, report: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.api.jobs.current_store", lambda: site.store)
    monkeypatch.setattr("airflow_ett.api.access.get_auth_manager", lambda: _Manager())
    # Some begin at the same instant, and the file's cursors must not lose any of them.
    rows = [report(job=f"{i:04}", run_id=f"r{i // 20}", begin_ns=i // 4) for i in range(700)]
    site.keep(*rows, report(job="z", dag_id="secret", run_id="z"))
    client = site.client()
    page = client.get("/dag/ranker?rows=all").text
    links = re.findall(r'href="\.\.(/api/v1/jobs[^"]+)" download>([^<]+)<', page)
    assert [text for _, text in links] == [
        "Download as CSV, 1 to 500",
        "Download as CSV, 501 to 600",
    ]
    jobs = []
    for href, _ in links:
        answer = client.get(html.unescape(href))
        assert answer.headers["content-type"].startswith("text/csv")
        jobs += [row["job"] for row in csv.DictReader(io.StringIO(answer.text))]
    assert len(jobs) == len(set(jobs)) == 600
    assert {f"r{int(job) // 20}" for job in jobs} == {f"r{i}" for i in range(5, 35)}


def test_a_period_with_too_many_jobs_says_so(
    site: Site, report: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.ui.dag.reads.MOST", 15)
    site.keep(*(report(job=f"{i:02}", run_id="r", begin_ns=i) for i in range(16)))
    text = text_of(site.client().get("/dag/ranker").text)
    assert "more jobs than one page counts. Everything below is of the newest 15." in text
    assert "12 of 15 jobs of 1 run" in text


def test_a_live_dag_has_a_pulse(site: Site, report: Make) -> None:
    client = site.client()
    # One that has not trained yet, or not now, may begin at any time.
    assert 'data-every="30"' in client.get("/dag/ranker").text
    site.keep(report())
    assert 'data-every="30"' in client.get("/dag/ranker").text
    site.keep(report(job="b", run_id="live", state="running", frozen=False))
    page = client.get("/dag/ranker").text
    assert 'data-pulse="../pulse/ranker"' in page
    assert 'data-every="5"' in page
    # A period that is over changes no more, unless one of its jobs goes on.
    assert "data-pulse" not in client.get("/dag/ranker?until=2026-11-01").text
    assert "data-pulse" in client.get("/dag/ranker?until=2026-11-30").text


def test_long_names_are_shown_whole(site: Site, report: Make) -> None:
    name = "\u202e" + "x" * 249
    site.keep(report(run_id=name))
    page = site.client().get("/dag/ranker").text
    assert f'target="_top"><bdi>{name}</bdi></a>' in page
    figure = json.loads(between(page, 'id="bars-fig">', "</script>"))
    # Of the lines beneath it none is turned around.
    assert figure["layout"]["xaxis"]["categoryarray"] == [f"\u2068{name}\u2069"]


class _Manager:
    """An auth manager that knows ``ranker`` alone."""

    def get_authorized_dag_ids(self, **asked: Any) -> set[str]:
        return {"ranker"}

    def batch_is_authorized_dag(self, *asked: Any, **more: Any) -> bool:
        return True
