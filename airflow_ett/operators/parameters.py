"""Checks of operators' parameters, by the parameter's name."""

from __future__ import annotations

import math
from datetime import timedelta

from airflow_ett.errors import ConfigurationError


def seconds(parameter: str, value: float | timedelta) -> float:
    """Return a length of time in seconds.

    Raises :class:`ConfigurationError` unless it is a finite length above 0.
    """
    length = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(length, bool) or not isinstance(length, int | float):
        problem = f"must be seconds or a timedelta, not {value!r}"
        raise ConfigurationError(parameter, problem)
    if not 0 < length < math.inf:
        raise ConfigurationError(parameter, f"must be above 0 s and finite, not {value}")
    return float(length)


def count(parameter: str, value: int) -> None:
    """Raise :class:`ConfigurationError` unless the value is a whole number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(parameter, f"must be a whole number, 0 or more, not {value!r}")


def text(value: object) -> str | None:
    """Return a path or the like as text, which triggers can carry; None stays."""
    return None if value is None else str(value)
