"""The pages in place of a page: right status, words that help, links that work from where it is."""

import re
from urllib.parse import urljoin

import pytest

pytest.importorskip("airflow.api_fastapi")

from airflow_ett.errors import StoreDamaged, StoreError, StoreMismatch
from airflow_ett.ui import pages
from airflow_ett.ui.clock import clock_of
from airflow_ett.ui.pulse import Pulse
from tests.ui.made_site import Site

NOW = 1_796_000_000 * 10**9
STATES = {
    "denied": pages.denied_page("ranker", "m.okafor"),
    "signed out": pages.signed_out_page(),
    "away": pages.store_page(StoreError("x"), now_ns=NOW, reference="0a1b2c3d"),
    "damaged": pages.store_page(StoreDamaged("x"), now_ns=NOW, reference="0a1b2c3d"),
    "behind": pages.store_page(
        StoreMismatch("x", found="0001", needed="0002"), now_ns=NOW, reference="0a1b2c3d"
    ),
    "failed": pages.failed_page("0a1b2c3d"),
    "no page": pages.no_page(404),
    "no address": pages.no_page(422),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_a_whole_page_that_asks_for_nothing(name: str) -> None:
    page = STATES[name]
    assert page.count("<h1") == 1
    assert '<html lang="en">' in page
    assert "<body>" in page
    assert "src=" not in page.split("</head>")[1]
    assert not re.search(r'href="(?:/|https?:)', page)


@pytest.mark.parametrize("page", ["/team-a/ett/dag/ranker", "/team-a/ett/run/ranker?run_id=r"])
def test_the_way_out_leads_to_airflows_dags(page: str) -> None:
    (link,) = re.findall(r'href="([^"]+)" target="_top"', STATES["denied"])
    assert urljoin(f"http://airflow{page}", link) == "http://airflow/team-a/dags"


@pytest.mark.parametrize("name", ["away", "damaged", "behind"])
def test_what_may_pass_can_be_tried_again(name: str) -> None:
    assert '<a class="btn" href="">Try again</a>' in STATES[name]


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/nothing", 404, "There is no page at this address"),
        ("GET", "/dag/ranker/more", 404, "There is no page at this address"),
        ("POST", "/dag/ranker", 405, "This address cannot be read"),
        ("GET", "/run/ranker?run_id=%00", 422, "This address cannot be read"),
        ("GET", "/run/ranker?run_id=" + 251 * "x", 422, "This address cannot be read"),
    ],
    ids=["unknown", "deeper", "method", "unstorable", "too long"],
)
def test_an_address_without_a_page(
    site: Site, method: str, path: str, status: int, words: str
) -> None:
    answer = site.client().request(method, path)
    assert answer.status_code == status
    assert words in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_page_says_its_zone_and_its_pulse() -> None:
    zone = 'Mars/"Olympus'
    pulse = Pulse("../pulse/ranker?run_id=a%26b&task_id=t", "1-2", NOW)
    page = pages.render("states/signed_out.html", clock_of(zone), pulse=pulse)
    assert '<html lang="en" data-zone="Mars/&#34;Olympus">' in page
    assert (
        '<body data-pulse="../pulse/ranker?run_id=a%26b&amp;task_id=t" data-version="1-2" '
        'data-every="5" data-at="00:53:20 UTC">' in page
    )
