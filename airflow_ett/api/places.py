"""Takes secrets out of the addresses that a job's log has told, for whoever shows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from airflow_ett.hooks.masking import redact
from airflow_ett.links import addresses

SafePlace = Callable[[str], str | None]
"""Returns a path or an address without what nobody may see; None where it can't tell."""

_IN_EVIDENCE = ("log", "handle")
_IN_PUBLISHED = ("uri", "registry", "checkpoint")
_ADDRESS = re.compile(r"\b[a-z][\w+.-]{0,30}://\S+", re.ASCII | re.IGNORECASE)


def safe_place(place: str) -> str | None:
    """Return a path or an address without secrets, None where nobody can tell what is one."""
    try:
        return addresses.without_secrets(place, redact)
    except ValueError:
        return None


def without_secrets(result: Mapping[str, Any], safe: SafePlace) -> dict[str, Any]:
    """Return the result with all its places made ``safe``."""

    def shown(place: Any) -> str | None:
        return safe(place) if isinstance(place, str) else None

    return {
        **result,
        "handle": shown(result["handle"]),
        "attempts": [_attempt(row, shown, safe) for row in result["attempts"]],
        "published": [
            row | {name: shown(row[name]) for name in _IN_PUBLISHED} for row in result["published"]
        ],
    }


def told(value: Any, safe: SafePlace = safe_place) -> Any:
    """Return JSON-able data, which anybody may have written, with the addresses in its texts made
    ``safe``.

    A URL in a message may bear a password as well as the place of a log does.
    """
    if isinstance(value, str):
        if "://" not in value:
            return value
        return _ADDRESS.sub(lambda found: safe(found[0]) or "***", value)
    if isinstance(value, Mapping):
        return {name: told(part, safe) for name, part in value.items()}
    return [told(part, safe) for part in value] if isinstance(value, list) else value


def is_web(place: str | None) -> bool:
    """Say whether a browser may be sent there."""
    return place is not None and place.startswith(("http://", "https://"))


def _attempt(
    row: Mapping[str, Any], shown: Callable[[Any], str | None], safe: SafePlace
) -> dict[str, Any]:
    evidence = row["evidence"]
    if isinstance(evidence, Mapping):
        places = {name: shown(evidence[name]) for name in _IN_EVIDENCE if name in evidence}
        evidence = told({**evidence, **places}, safe)
    return {**row, "log": shown(row["log"]), "evidence": evidence}
