"""One event of a job's life and its JSON form: one line, integer UTC nanoseconds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_ett.errors import EventLogError
from airflow_ett.events.vocabulary import SCHEMA_VERSION

_MOST = 2**63 - 1
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_KNOWN = frozenset({"v", "job", "writer", "seq", "time", "event", "attempt", "rank", "data"})


class AttemptId(NamedTuple):
    """Identity of an attempt, fixed when its submission starts (a restart counts from 0)."""

    submission: int
    scheduler_restart: int = 0
    elastic_restart: int = 0

    def __str__(self) -> str:
        return f"{self.submission}.{self.scheduler_restart}.{self.elastic_restart}"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to ``job`` at ``time_ns`` (UTC nanoseconds).

    ``(job, writer, seq)`` is unique: reading a line twice changes nothing. ``attempt`` and ``rank``
    are None where they do not apply. ``extra`` keeps top-level fields unknown to this version, and
    ``v`` where the line was written in another version of the schema.
    """

    job: str
    writer: str
    seq: int
    time_ns: int
    kind: str
    attempt: AttemptId | None = None
    rank: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version of the schema in which the event was written."""
        return int(self.extra.get("v", SCHEMA_VERSION))


def encode(event: Event) -> bytes:
    """Return the event as one line of JSON, newline included.

    A number in its data that JSON has no word for (NaN, infinity) becomes null.
    """
    fields: dict[str, Any] = {
        "v": SCHEMA_VERSION,
        "job": event.job,
        "writer": event.writer,
        "seq": event.seq,
        "time": event.time_ns,
        "event": str(event.kind),
    }
    if event.attempt is not None:
        fields["attempt"] = list(event.attempt)
    if event.rank is not None:
        fields["rank"] = event.rank
    if event.data:
        fields["data"] = dict(event.data)
    fields.update(event.extra)
    try:
        text = _dumps(fields)
    except ValueError:
        text = _dumps(_without_odd(fields))
    return text.encode() + b"\n"


def _dumps(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _without_odd(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_odd(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_odd(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def decode(line: bytes | str) -> Event:
    """Return the event in ``line``. One of another schema version is kept as it is.

    Raises :class:`EventLogError` that says what is wrong with it.
    """
    try:
        # UTF-8 and no other: the decoder would guess at bytes.
        fields = _DECODER.decode(line.decode() if isinstance(line, bytes) else line)
    except (ValueError, RecursionError) as error:
        raise EventLogError(f"not a line of JSON: {error}") from error
    if not isinstance(fields, dict):
        raise EventLogError(f"not a JSON object but {type(fields).__name__}")
    data = fields.get("data", {})
    if not isinstance(data, dict):
        raise EventLogError("data is not a JSON object")
    return Event(
        job=_text(fields, "job"),
        writer=_text(fields, "writer"),
        seq=_whole(fields, "seq"),
        time_ns=_whole(fields, "time"),
        kind=_text(fields, "event"),
        attempt=_attempt(fields.get("attempt")),
        rank=_whole(fields, "rank") if fields.get("rank") is not None else None,
        data=data,
        extra=_extra(fields),
    )


def _extra(fields: Mapping[str, Any]) -> dict[str, Any]:
    extra = {name: value for name, value in fields.items() if name not in _KNOWN}
    version = _whole(fields, "v") if "v" in fields else SCHEMA_VERSION
    return extra if version == SCHEMA_VERSION else {"v": version, **extra}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number} is beyond the range of a float")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)


def _needed(fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        raise EventLogError(f"{name} is missing")
    return fields[name]


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = _needed(fields, name)
    if not isinstance(value, str) or not value:
        raise EventLogError(f"{name} is not a text but {value!r}")
    if _UNSTORABLE.search(value):
        raise EventLogError(f"{name} holds a character that no database stores: {value!r}")
    return value


def _whole(fields: Mapping[str, Any], name: str) -> int:
    value = _needed(fields, name)
    if not _is_whole(value):
        raise EventLogError(f"{name} is not a whole number from 0 to 2**63 - 1 but {value!r}")
    return int(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _attempt(value: object) -> AttemptId | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3 or not all(_is_whole(part) for part in value):
        raise EventLogError(f"attempt is not [submission, scheduler, elastic] but {value!r}")
    return AttemptId(*value)
