"""Checkpoints and compilations, and what of the training was saved, lost or is at risk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_ett.events import AttemptId, Event, Kind
from airflow_ett.metric.evidence import Evidence, text, whole
from airflow_ett.metric.lanes import MAIN
from airflow_ett.metric.progress import Trained, Walk
from airflow_ett.metric.result import Checkpoint, Compile


@dataclass(slots=True)
class _Save:
    attempt: AttemptId
    saved: list[Event] = field(default_factory=list)
    committed: list[Event] = field(default_factory=list)


def checkpoints(seen: Iterable[Evidence]) -> tuple[Checkpoint, ...]:
    """Return the saves in the order of attempts and time. A commit belongs to the newest save of
    its URI, also when a later attempt finished it.
    """
    saves: list[tuple[str, _Save]] = []
    newest: dict[str, _Save] = {}
    for evidence in seen:
        events = evidence.of(Kind.CHECKPOINT_SAVED, Kind.CHECKPOINT_COMMITTED)
        for event in sorted(events, key=lambda event: event.time_ns):
            uri = text(event.data, "checkpoint")
            if uri is None:
                continue
            save = newest.get(uri)
            is_commit = event.kind == Kind.CHECKPOINT_COMMITTED
            if save is None or (save.attempt != evidence.id and (not is_commit or save.committed)):
                save = newest[uri] = _Save(evidence.id)
                saves.append((uri, save))
            (save.committed if is_commit else save.saved).append(event)
    return tuple(_checkpoint(uri, save) for uri, save in saves)


def _checkpoint(uri: str, save: _Save) -> Checkpoint:
    both = [*save.committed, *save.saved]
    return Checkpoint(
        uri=uri,
        cursor=_pick(both, "cursor", max),
        saved_ns=max((event.time_ns for event in save.saved), default=None),
        committed_ns=min((event.time_ns for event in save.committed), default=None),
        blocking_ns=_pick(save.saved, "blocking_ns", max),
        upload_ns=_pick(save.committed, "upload_ns", max),
        bytes=_pick(save.committed, "bytes", max),
        anchor=any(event.data.get("anchor") is True for event in both),
        attempt=save.attempt,
    )


def _pick(events: list[Event], name: str, choose: Callable[[list[int]], int]) -> int | None:
    values = [value for event in events if (value := whole(event.data, name)) is not None]
    return choose(values) if values else None


def compiles(seen: Iterable[Evidence]) -> tuple[Compile, ...]:
    """Return the compilations in order of time. The event stands at a compilation's end."""
    found = []
    for evidence in seen:
        for event in evidence.of(Kind.COMPILE):
            duration = whole(event.data, "duration_ns") or 0
            found.append(
                Compile(
                    id=text(event.data, "id"),
                    attempt=evidence.id,
                    begin_ns=max(0, event.time_ns - duration),
                    duration_ns=duration,
                    hits=whole(event.data, "hits"),
                    misses=whole(event.data, "misses"),
                    reason=text(event.data, "reason"),
                    lane=text(event.data, "lane") or MAIN,
                )
            )
    return tuple(sorted(found, key=lambda row: (row.attempt, row.begin_ns, row.id or "")))


@dataclass(frozen=True, slots=True)
class Resumed:
    """From where an attempt went on: a checkpoint's URI, if any, and the cursor."""

    uri: str | None
    cursor: int | None


def resumed(evidence: Evidence, walk: Walk) -> Resumed:
    """Return from where the attempt went on; nothing is known of one that died before it did."""
    for event in evidence.of(Kind.RESUMED):
        cursor = whole(event.data, "cursor")
        return Resumed(
            text(event.data, "checkpoint"), walk.cursor_from if cursor is None else cursor
        )
    return Resumed(None, walk.cursor_from)


def unsaved(
    seen: list[Evidence], walks: list[Walk], saved: tuple[Checkpoint, ...]
) -> tuple[int, int]:
    """Return unsaved training time and work at risk, in ns.

    Unsaved (UTT) is first-time training beyond the cursor from which an attempt really went on; a
    piece is lost once. At risk is first-time training beyond the newest committed checkpoint.
    """
    pieces: list[Trained] = []
    lost, safe = 0, 0
    for evidence, walk in zip(seen, walks, strict=True):
        cursor = resumed(evidence, walk).cursor
        if cursor is not None:
            lost += _drop(pieces, cursor)
            safe = cursor
        pieces += walk.trained
        commits = [c for c in saved if c.attempt == evidence.id and c.committed_ns is not None]
        for commit in sorted(commits, key=lambda commit: commit.committed_ns or 0):
            safe = safe if commit.cursor is None else commit.cursor
    return lost, _drop(pieces, safe)


def _drop(pieces: list[Trained], cursor: int) -> int:
    """Remove what lies beyond ``cursor`` and return its time; a piece across it is cut pro rata."""
    time = 0
    while pieces and pieces[-1].cursor_to > cursor:
        piece = pieces.pop()
        if piece.cursor_from >= cursor:
            time += piece.ns
            continue
        span = piece.cursor_to - piece.cursor_from
        beyond = piece.ns * (piece.cursor_to - cursor) // span
        pieces.append(Trained(piece.cursor_from, cursor, piece.ns - beyond))
        time += beyond
    return time
