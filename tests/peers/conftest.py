"""Peers' logs as lines, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from airflow_ett.events import Event, encode
from airflow_ett.metric import JobMetric, measure
from airflow_ett.peers import Problem


class Story:
    """What a reader told: events, and problems as (line, text)."""

    def __init__(self, told: Iterable[Event | Problem]) -> None:
        every = list(told)
        self.events = [item for item in every if isinstance(item, Event)]
        self.problems = [(p.line, p.text) for p in every if isinstance(p, Problem)]

    @property
    def texts(self) -> str:
        return "\n".join(text for _, text in self.problems)

    @property
    def metric(self) -> JobMetric:
        return measure(self.events)

    @property
    def phases(self) -> dict[str, float]:
        return {name: value / 10**9 for name, value in self.metric.phases_ns.items()}


@pytest.fixture(scope="session")
def lines() -> Callable[[Iterable[Any]], list[str]]:
    """Entries as lines."""
    return lambda entries: [json.dumps(entry) + "\n" for entry in entries]


@pytest.fixture(scope="session")
def read(repo: Path) -> Callable[[Iterable[Event | Problem]], Story]:
    """Collect what a reader tells; every event must be as the schema has it."""
    schema = json.loads((repo / "docs" / "event-log.schema.json").read_text())
    validator = Draft202012Validator(schema)

    def collect(told: Iterable[Event | Problem]) -> Story:
        story = Story(told)
        for event in story.events:
            validator.validate(json.loads(encode(event)))
        return story

    return collect
