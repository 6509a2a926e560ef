"""What the instrumentation costs per call: the cursor record and an event of the log."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from airflow_ett.events import AttemptId, CursorFile, Event, LogWriter, encode

CALLS = 20_000
ROUNDS = 7


def nanoseconds(call: Callable[[], object]) -> float:
    """Return the median over rounds of the mean cost of a call."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter_ns() - begin) / CALLS)
    return statistics.median(rounds)


def main() -> None:
    """Print a line for each operation."""
    with tempfile.TemporaryDirectory() as folder:
        cursor = CursorFile(Path(folder, "cursor"))
        log = LogWriter(Path(folder, "log.jsonl"), job="0" * 20, writer="bench")
        fields = (1, 0, 0, 0, 4711, *range(11))
        interval = dict.fromkeys(("from", "to", "cursor_from", "cursor_to", "steps"), 10**18)
        event = Event("0" * 20, "bench", 1, 10**18, "interval", AttemptId(1), 0, interval)
        operations: dict[str, Callable[[], object]] = {
            "cursor written": lambda: cursor.write(*fields),
            "event encoded": lambda: encode(event),
            "event appended": lambda: log.append("interval", interval),
        }
        for name, call in operations.items():
            print(f"{name:16} {nanoseconds(call) / 1000:7.2f} µs")


if __name__ == "__main__":
    main()
