"""``python -m airflow_ett.publish.job PLACE NUMBER``: publish what a file asks for, as a job.

For schedulers: nothing but two files connects it with whoever submitted it::

    <place>/request-<number>.json   a :class:`airflow_ett.publish.Request`, read
    <place>/result-<number>.json    {"published": {...}} or {"error": "..."}, written last, whole
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from airflow_ett.errors import EttError, PublishError
from airflow_ett.publish.publisher import Published, publish
from airflow_ett.publish.request import Request
from airflow_ett.storage import open_storage


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish; return 0, or 1 after one line on stderr that says what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m airflow_ett.publish.job", description=__doc__)
    parser.add_argument("place", help="a folder, or the URI of one in an object store")
    parser.add_argument("number", type=int)
    options = parser.parse_args(arguments)
    storage = open_storage(options.place)
    outcome: dict[str, Any]
    try:
        request = _request(storage.read(f"request-{options.number}.json"), options.place)
        outcome = {"published": asdict(_publish(request))}
    except EttError as error:
        told = " ".join(str(error).split())
        print(f"not published: {told}", file=sys.stderr)
        outcome = {"error": told}
    storage.write(f"result-{options.number}.json", json.dumps(outcome).encode())
    return 1 if "error" in outcome else 0


def _request(content: bytes | None, place: str) -> Request:
    if content is None:
        raise PublishError(f"{place} does not hold the request; is it shared with this node?")
    try:
        asked = json.loads(content)
        return Request(**asked | {"transforms": tuple(asked["transforms"])})
    except (ValueError, KeyError, TypeError) as error:
        raise PublishError(
            f"the request in {place} cannot be read: {error!r}; have the same airflow-ett on the "
            "worker and in the app's image"
        ) from error


def _publish(request: Request) -> Published:
    published = publish(request)
    print(f"{published.uri} is published, version {published.version}")
    return published


if __name__ == "__main__":
    # So that what is staged is removed, and the process that tries it ends.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
