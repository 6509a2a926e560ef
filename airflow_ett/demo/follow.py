"""Following a job while it runs: its events and what its trainers print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from airflow_ett.events import Event, RunDir, read_log


class EventFollower:
    """Returns the events below a run root that were not returned before."""

    def __init__(self, run_root: Path) -> None:
        self._run_root = run_root
        self._offsets: dict[Path, int] = {}

    def new(self) -> list[Event]:
        """Return the new events of all jobs in order of time."""
        events: list[Event] = []
        # <deployment>/<dag>/<run>/<task>/g<generation>
        for folder in self._run_root.glob("*/*/*/*/g*"):
            for path in RunDir(folder).logs():
                chunk = read_log(path, self._offsets.get(path, 0))
                self._offsets[path] = chunk.offset
                events.extend(chunk.events)
        return sorted(events, key=lambda event: event.time_ns)


class OutputFollower:
    """Returns the whole lines that files have grown by since the last look."""

    def __init__(self) -> None:
        self._offsets: dict[Path, int] = {}

    def new(self, paths: Iterable[Path]) -> Iterator[str]:
        """Yield the new lines of each file, without their newlines."""
        for path in paths:
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            yield from whole.decode(errors="replace").splitlines()
