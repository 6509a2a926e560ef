"""``docs/metric.md`` says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from airflow_ett.events import decode
from airflow_ett.metric import COMPONENTS, measure

PAGE = (Path(__file__).parents[2] / "docs" / "metric.md").read_text()


def block(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return found[0]


def test_the_worked_example(invariants) -> None:
    metric = measure([decode(line) for line in block("jsonl").splitlines()])
    invariants(metric)
    result = metric.as_dict()
    told = json.loads(block("json"))
    computed = {name: result[name] for name in told}
    for name in ("ett_pct", "ett_pct_held", "ett_pct_paper"):
        computed[name] = round(computed[name], 2)
    assert computed == told
    assert result["quality_reasons"] == []


def test_the_table_of_components() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w-]*) ?\| (.*) \|$", PAGE, re.MULTILINE)
    told = [(name, owner, tuple(re.findall(r"`(\w+)`", phases))) for name, owner, phases in rows]
    assert told == [(name, part.owner, part.phases) for name, part in COMPONENTS.items()]
