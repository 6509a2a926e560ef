"""The JSON Schema of the event log, as a validator that knows 1.0 from 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, validators


def _is_whole(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@pytest.fixture(scope="session")
def schema(repo: Path) -> dict[str, Any]:
    """What docs/event-log.schema.json holds."""
    loaded: dict[str, Any] = json.loads((repo / "docs" / "event-log.schema.json").read_text())
    Draft202012Validator.check_schema(loaded)
    return loaded


@pytest.fixture(scope="session")
def validator(schema: dict[str, Any]) -> Any:
    """A validator of whole lines."""
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole)
    return validators.extend(Draft202012Validator, type_checker=types)(schema)
