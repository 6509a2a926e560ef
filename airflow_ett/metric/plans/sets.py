"""A set of jobs as one: given as ``JobMetric.as_dict()`` data, weighed by their wall clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_ett.errors import ConfigurationError

Result = Mapping[str, Any]
"""One job as ``JobMetric.as_dict()``, ``report --json`` and the database hold it."""


def measured(results: Iterable[Result], name: str) -> list[Result]:
    """Return the jobs that have an ETT%: of others nobody knows when they trained.

    Raises :class:`ConfigurationError` that names the set where it holds none.
    """
    jobs = [result for result in results if result["ett_pct"] is not None]
    if not jobs:
        raise ConfigurationError(name, "no job with an ETT% is in it: no trainer told of its steps")
    return jobs


def total(jobs: Iterable[Result], measure: str) -> int:
    """Return the sum of one measure, such as ``wall_ns``."""
    return sum(job[measure] for job in jobs)
