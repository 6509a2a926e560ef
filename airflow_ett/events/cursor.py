"""The cursor file: where rank 0 stands in the data, exact even after SIGKILL.

A memory-mapped record in two slots, written in turn: a kill in the middle of a write leaves the
other slot whole. What a step changes has the record's count at both ends, so that a write that
broke off is told for certain, and the whole record a checksum, which tells of other damage. It
holds the interval that is still open, under the sequence number that the trainer would have used,
so that whoever closes it (the trainer, its agent, the launcher) writes the same event and ingest
keeps one.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from airflow_ett.events.job import trainer_writer
from airflow_ett.events.record import AttemptId, Event
from airflow_ett.events.vocabulary import Kind

_MAGIC = 0x45545444
_STEP = struct.Struct("<7q")
_FRAME = struct.Struct("<11q")
_SUM_AT = _STEP.size
_FRAME_AT = _SUM_AT + 4
_RECORD = _FRAME_AT + _FRAME.size
_SLOT = 256
_SLOTS = (0, _SLOT)
_SIZE = 2 * _SLOT


@dataclass(frozen=True, slots=True)
class CursorRecord:
    """The record's content; times are UTC nanoseconds, cursors global samples.

    ``closed``: 0 while the interval is open within a loop, 1 once it is closed (in a phase), 2
    while it is open between or after the loops.

    ``seq`` is the number that the open interval will bear; the interval reaches from ``from_ns`` to
    ``to_ns`` and is made of ``step_ns``, ``wait_ns`` and ``other_ns``, which sum to its length.
    """

    count: int
    submission: int
    scheduler_restart: int
    elastic_restart: int
    rank: int
    pid: int
    seq: int
    cursor: int
    hwm: int
    from_ns: int
    to_ns: int
    cursor_from: int
    steps: int
    step_ns: int
    wait_ns: int
    other_ns: int
    closed: int

    @property
    def attempt(self) -> AttemptId:
        """The attempt whose trainer wrote the record."""
        return AttemptId(self.submission, self.scheduler_restart, self.elastic_restart)

    @property
    def in_loop(self) -> bool:
        """Whether a step is under way or a batch is waited for, and no phase goes on."""
        return self.closed == 0

    def open_interval(self, job: str) -> Event | None:
        """Return the interval that the trainer left open as the event it would have written."""
        if self.closed == 1 or self.to_ns <= self.from_ns:
            return None
        return Event(
            job=job,
            writer=trainer_writer(self.attempt, self.rank, self.pid),
            seq=self.seq,
            time_ns=self.to_ns,
            kind=Kind.INTERVAL,
            attempt=self.attempt,
            rank=self.rank,
            data={
                "from": self.from_ns,
                "to": self.to_ns,
                "cursor_from": self.cursor_from,
                "cursor_to": self.cursor,
                "steps": self.steps,
                "step_ns": self.step_ns,
                "wait_ns": self.wait_ns,
                "other_ns": self.other_ns,
            },
        )


class CursorFile:
    """The writing side. ``step`` is one pack and one checksum, and calls no kernel.

    What a step changes stands first in a slot, what an interval fixes behind it, under one checksum
    that starts from the fixed part's: so a step packs and sums only seven numbers. Adler-32 takes a
    third of CRC-32's time.
    """

    __slots__ = ("_bodies", "_count", "_frame_sum", "_map", "_sums")

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            # Reserved, not sparse: a store into a hole of a full disk would be a fatal SIGBUS.
            os.posix_fallocate(handle, 0, _SIZE)
            self._map = mmap.mmap(handle, _SIZE)
        finally:
            os.close(handle)
        last = decode_cursor(self._map[:_SIZE])
        self._count = last.count if last else 0
        self._frame_sum = 0
        view = memoryview(self._map)
        self._bodies = tuple(view[at : at + _SUM_AT] for at in _SLOTS)
        self._sums = tuple(view[at + _SUM_AT : at + _FRAME_AT].cast("I") for at in _SLOTS)

    def write(self, *fields: int) -> None:
        """Write the record's fields after ``count``, in the order of :class:`CursorRecord`."""
        (submission, scheduler, elastic, rank, pid, seq, cursor, hwm, from_ns, to_ns) = fields[:10]
        (cursor_from, steps, step_ns, wait_ns, _, closed) = fields[10:]
        frame = _FRAME.pack(
            submission,
            scheduler,
            elastic,
            rank,
            pid,
            seq,
            hwm,
            from_ns,
            cursor_from,
            closed,
            _MAGIC,
        )
        self._frame_sum = zlib.adler32(frame)
        for _ in _SLOTS:
            slot = (self._count + 1) & 1
            self._sums[slot][0] = 0  # void until it is whole again
            self._map[_SLOTS[slot] + _FRAME_AT : _SLOTS[slot] + _RECORD] = frame
            self.step(cursor, to_ns, steps, step_ns, wait_ns)

    def step(self, cursor: int, to_ns: int, steps: int, step_ns: int, wait_ns: int) -> None:
        """Write what a step changes of the interval that the last ``write`` opened."""
        self._count = count = self._count + 1
        slot = count & 1
        body = self._bodies[slot]
        _STEP.pack_into(body, 0, count, cursor, to_ns, steps, step_ns, wait_ns, count)
        self._sums[slot][0] = zlib.adler32(body, self._frame_sum)

    def close(self) -> None:
        """Unmap the file."""
        for view in (*self._bodies, *self._sums):
            view.release()
        self._map.close()


def read_cursor(path: Path) -> CursorRecord | None:
    """Return the newest whole record, or None where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        return decode_cursor(file.read(_SIZE))


def decode_cursor(content: bytes) -> CursorRecord | None:
    """Return the newest whole record of a cursor file's content, or None where there is none."""
    records = [_slot(content[at : at + _SLOT]) for at in _SLOTS]
    return max((r for r in records if r), key=lambda record: record.count, default=None)


def _slot(content: bytes) -> CursorRecord | None:
    if len(content) < _RECORD:
        return None
    body, frame = content[:_SUM_AT], content[_FRAME_AT:_RECORD]
    checksum = int.from_bytes(content[_SUM_AT:_FRAME_AT], sys.byteorder)
    if zlib.adler32(body, zlib.adler32(frame)) != checksum:
        return None
    count, cursor, to_ns, steps, step_ns, wait_ns, last = _STEP.unpack(body)
    submission, scheduler, elastic, rank, pid, seq, hwm, from_ns, cursor_from, closed, magic = (
        _FRAME.unpack(frame)
    )
    if magic != _MAGIC or last != count:
        return None
    return CursorRecord(
        count=count,
        submission=submission,
        scheduler_restart=scheduler,
        elastic_restart=elastic,
        rank=rank,
        pid=pid,
        seq=seq,
        cursor=cursor,
        hwm=max(hwm, cursor),
        from_ns=from_ns,
        to_ns=to_ns,
        cursor_from=cursor_from,
        steps=steps,
        step_ns=step_ns,
        wait_ns=wait_ns,
        other_ns=to_ns - from_ns - step_ns - wait_ns,
        closed=closed,
    )
