"""The publisher as a scheduler's app: a file in, a file out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.publish import Published, job

ASKED = {"checkpoint": "/none", "model": "m:f", "registry": "/r", "name": "m", "transforms": []}


def result(place: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((place / "result-7.json").read_bytes())
    return read


def test_it_publishes_what_the_file_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    values: dict[str, Any] = {"version": "v", "uri": "/r/m/v", "digest": "d", "existed": False}
    fields = dict.fromkeys(Published.__dataclass_fields__, 0) | values
    monkeypatch.setattr(job, "publish", lambda request: seen.append(request) or Published(**fields))
    asked = {**ASKED, "transforms": ["int8", "export"]}
    (tmp_path / "request-7.json").write_text(json.dumps(asked))
    assert job.main([str(tmp_path), "7"]) == 0
    assert seen[0].transforms == ("int8", "export")
    assert result(tmp_path) == {"published": fields}


def test_what_went_wrong_is_its_result(tmp_path: Path) -> None:
    (tmp_path / "request-7.json").write_text(json.dumps(ASKED))
    assert job.main([str(tmp_path), "7"]) == 1
    assert "/none" in result(tmp_path)["error"]


def test_a_place_that_it_does_not_share_is_said(tmp_path: Path) -> None:
    assert job.main([str(tmp_path), "7"]) == 1
    assert "does not hold the request" in result(tmp_path)["error"]


@pytest.mark.parametrize("asked", ["{}", "[]", "no JSON", json.dumps({**ASKED, "newer": 1})])
def test_a_request_of_another_release_is_said(tmp_path: Path, asked: str) -> None:
    (tmp_path / "request-7.json").write_text(asked)
    assert job.main([str(tmp_path), "7"]) == 1
    assert "have the same airflow-ett" in result(tmp_path)["error"]
