"""The title of a job, its facts and links."""

from typing import Any

import pytest

from airflow_ett.api.places import is_web, safe_place, without_secrets
from airflow_ett.ui.run.head import head
from tests.ui.run.showing import UTC, chips, facts, view_of, words


def test_the_title_of_a_live_job(lively: Any) -> None:
    view = view_of(lively)
    assert view.head.title == "train"
    assert [words(text) for text in chips(view)] == [
        *("Running", "Provisional", "No progress for 6 m 37 s")
    ]
    assert facts(view) == {
        "Generation": "1",
        "Attempt": "4",
        "Accelerators": "32",
        "Scheduler": "slurm",
        "App": "slurm://torchx/418802",
        "Submitted": UTC.instant(lively.result["begin_ns"]),
        "Last sign of life": UTC.instant(lively.result["end_ns"]),
        "Log of rank 0": "/logs/rank0.out",
        "Data": "complete",
    }


def test_the_title_of_an_ended_job(wide: Any) -> None:
    view = view_of(wide, map_index=3, revision=2, revised_ns=0)
    assert view.head.title == "train[3]"
    assert chips(view) == ["Success"]
    told = facts(view)
    assert told["Attempts"] == "1"
    assert told["Revision"] == "2, 1970-01-01 00:00:00 UTC"
    assert "Last sign of life" not in told


def test_links_lead_to_airflow_the_logs_and_the_api(wide: Any) -> None:
    told = wide.result | {"run_id": "a/b c", "map_index": 2, "handle": "https://jobs.example/7"}
    found = head(told, UTC, stands=None, silent_ns=None, others=())
    links = {link.text: link for link in found.links}
    page = "../../dags/ranker/runs/a%2Fb%20c/tasks/train/mapped/2"
    assert links["Airflow task"].href == f"{page}/details"
    assert links["Task log"].href == f"{page}?try_number=1"
    assert links["Scheduler"].href == "https://jobs.example/7"
    assert links["Phases as CSV"].href == f"../api/v1/jobs/{told['job']}/phases?format=csv"
    assert all(link.top for name, link in links.items() if name not in _FILES)
    assert "Log of rank 0" not in links


_FILES = ("Phases as CSV", "Job as JSON")


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "file:///etc/passwd", "slurm://a/1", "/logs/0", "", None]
)
def test_only_web_addresses_are_links(wide: Any, address: str | None) -> None:
    assert not is_web(address)
    found = head(
        wide.result | {"handle": address},
        UTC,
        stands=None,
        silent_ns=None,
        others=(),
    )
    assert "Scheduler" not in [link.text for link in found.links]


def test_secrets_are_taken_out_of_every_place(broken: Any) -> None:
    place = "https://me:secret@jobs.example/7"
    attempts = [
        one | {"log": place, "evidence": one["evidence"] | {"log": place, "handle": place}}
        for one in broken.result["attempts"]
    ]
    published = [{"version": "1", "uri": place, "registry": place, "checkpoint": place}]
    result = broken.result | {"handle": place, "attempts": attempts, "published": published}
    assert str(result).count("secret") == 4 + 3 * len(attempts)
    cleaned = without_secrets(result, lambda text: text.replace("me:secret@", ""))
    assert "secret" not in str(cleaned)
    assert str(cleaned).count("https://jobs.example/7") == 4 + 3 * len(attempts)
    odd = [one | {"evidence": {"log": 7}} for one in attempts] + [attempts[0] | {"evidence": None}]
    assert without_secrets(result | {"attempts": odd}, str)["attempts"][-1]["evidence"] is None
    assert without_secrets(broken.result, str) == broken.result


def test_other_generations_are_linked(wide: Any) -> None:
    row = {"job": "older", "generation": 1, "begin_ns": wide.result["begin_ns"]}
    found = head(wide.result, UTC, stands=None, silent_ns=None, others=[row])
    (link,) = found.generations
    assert link.text.startswith("Generation 1, ")
    assert link.href == "?run_id=wide&task_id=train&map_index=-1&job=older"


def test_addresses_in_messages_bear_no_secrets(broken: Any) -> None:
    address = "https://me:secret@jobs.example/7?token=secret&a=1"
    told = {
        "text": f"see {address}, then go on",
        "lines": [f"GET {address}", "C:/x"],
        "error": {"message": f"postgresql://me:secret@db/x and {address}", "code": 7},
    }
    attempts = [row | {"evidence": told} for row in broken.result["attempts"]]
    cleaned = without_secrets(broken.result | {"attempts": attempts}, safe_place)
    evidence = cleaned["attempts"][0]["evidence"]
    assert "secret" not in str(evidence)
    assert evidence["text"].startswith("see https://jobs.example/7?a=1")
    assert evidence["lines"][1] == "C:/x"
    assert evidence["error"]["code"] == 7
