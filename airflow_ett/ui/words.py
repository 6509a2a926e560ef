"""Words and sizes that several pages show. Pure."""

from __future__ import annotations

from airflow_ett.events import USER_CAUSES, Cause
from airflow_ett.metric.format import UNKNOWN

_CAUSES = {
    Cause.USER_CANCELLED: "Cancelled by a user",
    Cause.USER_RESTART: "Restarted by a user",
}
_STATES = {
    "running": ("run", "Running"),
    "succeeded": ("ok", "Success"),
    "failed": ("bad", "Failed"),
    "cancelled": ("none", "Cancelled"),
}
_QUALITIES = {"complete": "Complete", "partial": "Partial", "launcher_only": "Launcher only"}
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def cause(name: str | None) -> str:
    """Return a cause in words, such as ``Out of memory``; one that nobody told is unknown."""
    if not name:
        return "Unknown"
    known = {str(key): text for key, text in _CAUSES.items()}
    return known.get(name) or name.replace("_", " ").capitalize()


def state_chip(state: str) -> tuple[str, str]:
    """Return the kind and the words of a job's state."""
    return _STATES.get(state, ("none", state))


def quality(name: str) -> str:
    """Return how far a job is measured, in words."""
    return _QUALITIES.get(name, name)


def is_wish(name: str | None) -> bool:
    """Say whether a cause is somebody's wish and no failure."""
    return name in USER_CAUSES


def size(count: int | None) -> str:
    """Return a number of bytes with one decimal, such as ``42.2 GiB``."""
    if count is None:
        return UNKNOWN
    value, unit = float(count), 0
    while round(abs(value), 1) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.{1 if unit else 0}f}\u00a0{_UNITS[unit]}"


def isolated(name: str) -> str:
    """Return a name that leaves the sentence around it alone, whichever way it is written."""
    return f"\u2068{name}\u2069"
