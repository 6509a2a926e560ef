"""Checks of operators' parameters at DAG parse, by the parameter's name."""

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
