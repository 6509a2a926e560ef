"""What a scraper is told, and which token opens it."""

import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.api_fastapi")

from airflow_ett.api.openmetrics import Family, render, seconds
from tests.api.conftest import SECRET_DAG

Client = Callable[..., Any]
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?\d+(?:\.\d+)?)')
TOKEN = {"Authorization": "Bearer a-scraper"}


@pytest.fixture
def scraper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that opens every Dag."""
    monkeypatch.setenv("AIRFLOW__ETT__METRICS_TOKEN", "a-scraper")
    monkeypatch.setenv("AIRFLOW__ETT__METRICS_DAGS", "*")


def _samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            key = f"{match[1]}{{{match[2] or ''}}}"
            assert key not in found
            found[key] = float(match[3])
    return found


@pytest.mark.usefixtures("scraper")
def test_the_numbers_of_every_dag(client: Client) -> None:
    answer = client().get("/metrics", headers=TOKEN)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = _samples(answer.text)
    ranker = 'deployment="default",dag_id="ranker"'
    assert found[f"ett_jobs_running{{{ranker}}}"] == 1
    assert found[f"ett_jobs_ended_total{{{ranker}}}"] == 4
    assert found[f"ett_wall_seconds_total{{{ranker}}}"] == 360
    spent = {
        k: v for k, v in found.items() if k.startswith(f"ett_component_seconds_total{{{ranker}")
    }
    assert len(spent) == 7
    assert sum(spent.values()) == 360
    weighted = f'ett_component_accelerator_seconds_total{{{ranker},component="effective"}}'
    assert found[weighted] == 2 * found[f"ett_effective_seconds_total{{{ranker}}}"]
    assert found[f'ett_failures_total{{{ranker},cause="application"}}'] == 4
    assert found[f'ett_failures_total{{{ranker},cause="unknown"}}'] == 0
    assert any(SECRET_DAG in name for name in found)
    assert found["ett_dags_omitted{}"] == 0


@pytest.mark.usefixtures("scraper")
def test_openmetrics_where_it_is_asked_for(client: Client) -> None:
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    answer = client().get("/metrics", headers=TOKEN | accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    assert answer.text.count("# EOF") == 1
    assert "# TYPE ett_wall_seconds counter\n# UNIT ett_wall_seconds seconds\n" in answer.text
    types = re.findall(r"^# TYPE (\S+) (\S+)$", answer.text, re.M)
    assert len({name for name, _ in types}) == len(types)
    for name, kind in types:
        rows = re.findall(rf"^{name}(_total)?(?:\{{| )", answer.text, re.M)
        assert {bool(row) for row in rows} <= {kind == "counter"}
    prometheus = client().get("/metrics", headers=TOKEN).text
    assert _samples(prometheus) == _samples(answer.text)


@pytest.mark.parametrize(
    ("patterns", "dags"),
    [
        ("", set()),
        ("ranker", {"ranker"}),
        ("rank*, nothing", {"ranker"}),
        ("secret-*,ranker", {"ranker", SECRET_DAG}),
        ("Ranker", set()),
    ],
)
def test_a_token_sees_its_dags_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch, patterns: str, dags: set[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__METRICS_TOKEN", "a-scraper")
    monkeypatch.setenv("AIRFLOW__ETT__METRICS_DAGS", patterns)
    text = client().get("/metrics", headers=TOKEN).text
    assert set(re.findall(r'dag_id="([^"]+)"', text)) == dags


def test_without_a_token_it_says_what_to_set(client: Client) -> None:
    answer = client().get("/metrics")
    assert answer.status_code == 404
    assert "[ett] metrics_token" in answer.json()["detail"]
    assert client("forged").get("/metrics").status_code == 401
    # An empty token is none.
    assert client().get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


@pytest.mark.usefixtures("scraper")
@pytest.mark.parametrize("token", ["", "a-scrape", "a-scraper2", "A-SCRAPER", "äöü"])
def test_another_token_opens_nothing(client: Client, token: str) -> None:
    bearer = {"Authorization": f"Bearer {token}".encode()}
    assert client().get("/metrics", headers=bearer).status_code == 401
    assert client().get("/metrics").status_code == 401
    assert client().get("/metrics?token=a-scraper").status_code == 401


@pytest.mark.usefixtures("scraper")
def test_the_token_opens_nothing_but_metrics(client: Client) -> None:
    assert client("a-scraper").get("/api/v1/jobs").status_code == 403


def test_labels_and_helps_are_escaped() -> None:
    family = Family("x", "gauge", 'a "b"\n\\', samples=[({"dag_id": 'a"b\n\\c{}'}, "1")])
    text = render([family], open_=True)
    assert (
        text == '# TYPE x gauge\n# HELP x a \\"b\\"\\n\\\\\nx{dag_id="a\\"b\\n\\\\c{}"} 1\n# EOF\n'
    )
    assert seconds(1_000_000_001) == "1.000000001"
