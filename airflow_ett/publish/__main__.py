"""``python -m airflow_ett.publish``: publish one checkpoint; the last line is the result."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict

from airflow_ett.errors import EttError
from airflow_ett.publish.publisher import publish
from airflow_ett.publish.request import TRANSFORMS, Request


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish; return 0, or 1 after one line on stderr that says what went wrong.

    SIGTERM ends it in order: what it has staged is removed, and the process that tries it ends.
    """
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        published = publish(Request(**vars(options)))
    except EttError as error:
        print("not published:", " ".join(str(error).split()), file=sys.stderr)
        return 1
    if published.existed:
        print(f"{published.uri} was published before, or meanwhile by another, and is whole")
    if not published.latest:
        print(f"{published.version} is not the latest: a newer training's model is")
    print(json.dumps(asdict(published)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m airflow_ett.publish", description=__doc__)
    add = parser.add_argument
    add("--checkpoint", required=True, metavar="URI", help="a committed checkpoint")
    add(
        "--model",
        required=True,
        metavar="PKG.MODULE:FACTORY",
        help="returns the model",
    )
    add(
        "--registry",
        required=True,
        metavar="PLACE",
        help="a folder, s3://…, http(s)://…, mlflow+http(s)://…, mlflow: or PKG.MODULE:FACTORY",
    )
    add("--name", required=True, help="the model's name in the registry")
    add("--version", help="default: from the checkpoint's cursor and digest, and the transforms")
    add("--transforms", type=_listed, default=(), help=f"with commas: {', '.join(TRANSFORMS)}")
    add(
        "--golden",
        metavar="PKG.MODULE:FUNCTION",
        help="returns the inputs to try it with; default: the trainer's, or example_batch of the "
        "factory's module",
    )
    add("--tolerance", type=float, help="greatest difference of a score from the trainer's")
    add("--force-latest", action="store_true", help="even if a newer version is the latest")
    add("--training", type=json.loads, default={}, metavar="JSON", help="for the manifest")
    return parser


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


if __name__ == "__main__":
    sys.exit(main())
