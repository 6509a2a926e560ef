"""The long counts: ``python -m tests.soak`` runs them whole and writes ``docs/soak.md``.

The demo several times, a chaos run on this machine and one on a Slurm, and kills of trainers that
save and of publishers. What CI runs small runs here in full; the exit code is the result.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "soak.md"
HEAD = """# Soak

What CI counts small, counted whole by `make soak`, last run on {day} at {commit} ({cores} cores,
Python {python}).

| what | result | wall s | said |
|---|---|---|---|
"""


class Part(NamedTuple):
    """One run: what it is called, its command, the words that mark the line to keep."""

    name: str
    command: Sequence[str]
    mark: str
    env: dict[str, str]


def parts(
    demos: int, injections: int, on_slurm: int, kills: int, publishers: int
) -> Iterator[Part]:
    """Yield the runs."""
    own = [sys.executable, "-m"]
    for number in range(1, demos + 1):
        demo = [str(Path(sys.executable).with_name("airflow-ett")), "demo", "--no-keep"]
        yield Part(f"demo {number} of {demos}", demo, "ETT%", {})
    chaos = [*own, "tests.system.chaos", "--n", str(injections)]
    yield Part(f"chaos, {injections} injections", chaos, "chaos ", {})
    slurm = [*own, "tests.system.chaos", "--scheduler", "slurm", "--n", str(on_slurm)]
    yield Part(f"chaos on Slurm, {on_slurm} injections", slurm, "chaos ", {})
    soak = [*own, "pytest", "-qs", "tests/trainer/test_soak.py"]
    yield Part(f"{kills} kills", soak, "kills among", {"ETT_SOAK_KILLS": str(kills)})
    publish = [*own, "pytest", "-qs", "tests/publish/test_kills.py"]
    name = f"{publishers} kills of publishers"
    yield Part(name, publish, "kills of publishers", {"ETT_PUBLISH_KILLS": str(publishers)})


def run(part: Part) -> tuple[bool, str]:
    """Run a part with its output shown; return whether it succeeded, and its row of the table."""
    print(f"soak: {part.name}", flush=True)
    begun, said = time.monotonic(), ""
    process = subprocess.Popen(
        part.command,
        cwd=ROOT,
        env={**os.environ, **part.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        said = line.strip() if part.mark in line else said
    good = process.wait() == 0
    wall_s = time.monotonic() - begun
    result = "passed" if good else f"exit code {process.returncode}"
    return good, f"| {part.name} | {result} | {wall_s:.0f} | {said.replace('|', '/')} |\n"


def main() -> int:
    """Run all parts, write the page, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--demos", type=int, default=3)
    parser.add_argument("--injections", type=int, default=200)
    parser.add_argument("--injections-on-slurm", type=int, default=40)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--publishers", type=int, default=30)
    options = parser.parse_args()
    results = [
        run(part)
        for part in parts(
            options.demos,
            options.injections,
            options.injections_on_slurm,
            options.kills,
            options.publishers,
        )
    ]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    head = HEAD.format(
        day=datetime.now(UTC).date(),
        commit=commit.stdout.strip(),
        cores=os.cpu_count(),
        python=platform.python_version(),
    )
    PAGE.write_text(head + "".join(row for _, row in results))
    return 0 if all(good for good, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
