"""What the cause of an attempt's end was concluded from, in words. Pure.

Anybody may have written it: values of every type and length are shown as text.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_LABELS = {
    "source": "Told by",
    "replica": "Rank or replica",
    "raw": "Scheduler's state",
    "handle": "App",
    "seen": "Seen to end",
    "lines": "Last lines of the log",
    "type": "Exception",
}
_FOLDED = ("lines", "traceback")
_SHORT = 160
_SENTENCE = 280
_LONGEST = 16_000
"""Characters of one value: what the launcher writes is shorter."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """``text`` is a sentence, '' where nothing was told. ``facts`` and ``quotes`` are labelled.

    A quote is too long for a line, or has several.
    """

    text: str
    facts: tuple[tuple[str, str], ...]
    quotes: tuple[tuple[str, str], ...]


def evidence_of(found: Any) -> Evidence:
    """Return an attempt's evidence for people."""
    told = dict(_flat(found)) if isinstance(found, Mapping) else {}
    text = told.pop("text", "")
    facts: list[tuple[str, str]] = []
    quotes: list[tuple[str, str]] = []
    for name, value in told.items():
        is_long = name in _FOLDED or len(value) > _SHORT or "\n" in value
        (quotes if is_long else facts).append((_label(name), value))
    if len(text) > _SENTENCE:
        quotes.insert(0, ("In full", text))
        text = f"{text[:_SENTENCE]}…"
    if not text and facts:
        text = "; ".join(f"{name}: {value}" for name, value in facts[:3])
    return Evidence(text, tuple(facts), tuple(quotes))


def place_of(found: Any) -> str:
    """Return where it failed, such as ``rank 11 on gpu-a033``; '' where nobody knows."""
    if not isinstance(found, Mapping):
        return ""
    replica, host = found.get("replica"), found.get("host")
    rank = f"rank {_text(replica)}" if replica is not None else ""
    return " on ".join(part for part in (rank, _text(host) if host else "") if part)


def _flat(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        if value in (None, "", [], {}):
            continue
        if name == "error" and isinstance(value, Mapping):
            yield from _flat(value)
        else:
            text = _signal(value) if name == "signal" else _text(value)
            yield str(name), text[:_LONGEST]


def _signal(value: Any) -> str:
    with contextlib.suppress(ValueError, TypeError):
        return f"{value} ({signal.Signals(value).name})"
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False)


def _label(name: str) -> str:
    return _LABELS.get(name) or name.replace("_", " ").capitalize()
