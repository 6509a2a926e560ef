"""Why there is nothing to use."""

from __future__ import annotations

from airflow_ett.errors import EttError


class Absent(EttError):
    """There is no such content, or none that may be used; the message says why."""


class NothingSaved(Absent):
    """Nothing is kept under that name."""
