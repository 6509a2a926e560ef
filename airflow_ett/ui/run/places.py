"""Takes secrets out of the addresses in a job's result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

SafePlace = Callable[[str], str | None]
"""Returns a path or an address without what nobody may see; None where it can't tell."""

_IN_EVIDENCE = ("log", "handle")


def without_secrets(result: Mapping[str, Any], safe: SafePlace) -> dict[str, Any]:
    """Return the result with all its places made ``safe``."""

    def shown(place: Any) -> str | None:
        return safe(place) if isinstance(place, str) else None

    return {
        **result,
        "handle": shown(result["handle"]),
        "attempts": [_attempt(row, shown) for row in result["attempts"]],
        "published": [row | {"uri": shown(row["uri"])} for row in result["published"]],
    }


def is_web(place: str | None) -> bool:
    """Say whether a browser may be sent there."""
    return place is not None and place.startswith(("http://", "https://"))


def _attempt(row: Mapping[str, Any], shown: Callable[[Any], str | None]) -> dict[str, Any]:
    evidence = row["evidence"]
    if isinstance(evidence, Mapping):
        places = {name: shown(evidence[name]) for name in _IN_EVIDENCE if name in evidence}
        evidence = {**evidence, **places}
    return {**row, "log": shown(row["log"]), "evidence": evidence}
