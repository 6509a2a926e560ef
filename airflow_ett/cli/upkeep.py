"""``db prune``, ``db export`` and ``db rebuild``: what grows, what is taken out, what is remade."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_ett import config
from airflow_ett.cli.opening import opened
from airflow_ett.cli.streams import tell
from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.format import instant
from airflow_ett.metric.report import table
from airflow_ett.storage import is_folder

if TYPE_CHECKING:
    from airflow_ett.store.retention import Pruned

_EVERY_S = 2.0
_UNITS = ("B", "kB", "MB", "GB", "TB")
_OPTIONS = ("keep_events", "keep_run_dirs", "keep_outputs", "keep_checkpoints")


def add_arguments(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add these actions to those of ``db``."""
    prune = actions.add_parser(
        "prune",
        help="remove what is older than [ett] keep_… allows",
        description="Remove what is older than the options [ett] keep_events, keep_run_dirs, "
        "keep_outputs and keep_checkpoints allow. Only jobs that have ended are touched, and their "
        "numbers stay.",
    )
    prune.add_argument("--dry-run", action="store_true", help="say what would go, remove nothing")
    prune.add_argument("--json", action="store_true", help="print all numbers as JSON")
    prune.set_defaults(run=_prune)

    export = actions.add_parser(
        "export",
        help="write raw events into a folder",
        description="Write the raw events of jobs into a folder, as JSON lines in run directories. "
        "Where the API holds the job logs, events are pruned only after that.",
    )
    export.add_argument("folder", metavar="FOLDER", help="a local one; any but the run root")
    export.add_argument("--dag-id", action="append", help="only this Dag's jobs; may be repeated")
    export.add_argument("--json", action="store_true", help="print all numbers as JSON")
    export.set_defaults(run=_export)

    rebuild = actions.add_parser(
        "rebuild",
        help="make all numbers again from run directories",
        description="Make all rows again from the run directories or exports below each ROOT; of "
        "jobs that are not there, from the events in the database. Numbers that come out the same "
        "stay the same revision.",
    )
    rebuild.add_argument("roots", nargs="+", metavar="ROOT", help="a run root, an export, or a URI")
    rebuild.add_argument(
        "--resume", action="store_true", help="go on with a rebuild that was interrupted"
    )
    rebuild.add_argument("--json", action="store_true", help="print all numbers as JSON")
    rebuild.set_defaults(run=_rebuild)


def _prune(options: argparse.Namespace) -> int:
    from airflow_ett.fleet.prune import prune

    settings = config.load()
    store = opened(settings)
    if all(getattr(settings, name) is None for name in _OPTIONS):
        tell(f"nothing is pruned: none of [ett] {', '.join(_OPTIONS)} is set")
    found = prune(settings, store, dry_run=options.dry_run)
    for note in (note for one in found for note in one.kept):
        tell(f"kept: {note}")
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
    elif found:
        print(_pruned(found, "Would go" if options.dry_run else "Removed"))
    return 0


def _pruned(found: list[Pruned], head: str) -> str:
    rows = [(head, "How many", "About", "Oldest")]
    for one in found:
        rows.append((one.what, f"{one.count:,}", _bytes(one.bytes), instant(one.oldest_ns)))
    return table(rows, texts=1)


def _export(options: argparse.Namespace) -> int:
    from airflow_ett.store.export import export

    if not is_folder(options.folder):
        problem = f"{options.folder} is an address; export to a folder, and copy that there"
        raise ConfigurationError("FOLDER", problem)
    settings = config.load()
    done = export(
        opened(settings),
        Path(options.folder).absolute(),
        dag_ids=options.dag_id,
        not_below=settings.run_root,
        progress=Progress("jobs"),
    )
    if done.kept:
        tell(f"{done.kept} jobs have no raw events any more: their former exports stay")
    if options.json:
        print(json.dumps(asdict(done), indent=2))
    else:
        print(f"{done.jobs} jobs, {done.events} events, {_bytes(done.bytes)} in {options.folder}")
    return 0


def _rebuild(options: argparse.Namespace) -> int:
    from airflow_ett.fleet import roll_up
    from airflow_ett.store.rebuild import rebuild

    roots = [Path(root).absolute() if is_folder(root) else root for root in options.roots]
    for root in roots:
        if isinstance(root, Path) and not root.is_dir():
            problem = "is no folder" if root.exists() else "does not exist"
            raise ConfigurationError("ROOT", f"{root} {problem}")
    settings = config.load()
    store = opened(settings)
    progress = Progress("run directories")
    try:
        done = rebuild(store, roots, resume=options.resume, progress=progress)
    except KeyboardInterrupt:
        tell("interrupted; go on with the same command and --resume")
        raise
    days = roll_up(store, timezone=settings.timezone)
    for problem in done.problems:
        tell(problem)
    if options.json:
        print(json.dumps({**asdict(done), "days": days}, indent=2))
    else:
        print(
            f"{done.from_logs} jobs made again from logs, {done.from_events} from the database's "
            f"events; {done.kept} kept as they were; {days} days summed up"
        )
    return 0


class Progress:
    """Tells on standard error, every two seconds, how far a long work is."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._begun = self._told = clock()

    def __call__(self, done: int, total: int) -> None:
        """Note that ``done`` of all are done."""
        now = self._clock()
        if now - self._told < _EVERY_S:
            return
        self._told = now
        rate = done / (now - self._begun)
        tell(f"{done:,} of {total:,} {self._what}, {rate:,.0f} a second")


def _bytes(count: int) -> str:
    """Return a size in at most four digits, such as ``12.3 MB``; a kB is 1000 bytes."""
    size, unit = float(count), 0
    while size >= 999.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} B"
