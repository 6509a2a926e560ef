"""What an ingest did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What an ingest did: events new to the database, lines that are no events, jobs touched.

    ``problems`` says of each bad line and each unreadable file what is wrong, and where.
    """

    new_events: int = 0
    bad_lines: int = 0
    jobs: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def __add__(self, other: IngestReport) -> IngestReport:
        return IngestReport(
            self.new_events + other.new_events,
            self.bad_lines + other.bad_lines,
            self.jobs + other.jobs,
            self.problems + other.problems,
        )
