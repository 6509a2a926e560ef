"""What files and logs of a place may be called: the same in a folder, an object store and the API.

Names come from launchers and trainers, over the network too, and become paths.
"""

from __future__ import annotations

import re

LOG_FOLDERS = ("launcher", "nodes")
"""Where logs lie, in the order in which they are read."""

_LOG = ".jsonl"
_LONGEST = 240
_MOST_PARTS = 6
_PART = re.compile(r"[A-Za-z0-9._+=@:~-]+", re.ASCII)


def checked_file(name: str) -> str:
    """Return the name of a file, such as ``launcher/claims/00000001.json``.

    Raises ``ValueError`` that says what is wrong with it.
    """
    if is_log(checked(name)):
        raise ValueError(f"{name!r} is the name of a log, and logs are appended to")
    return name


def checked_log(name: str) -> str:
    """Return the name of a log, such as ``nodes/agent-1.0.0-n0-p7.jsonl``.

    Raises ``ValueError`` that says what is wrong with it.
    """
    if not is_log(checked(name)):
        raise ValueError(f"{name!r} is no log: those are launcher/….jsonl and nodes/….jsonl")
    return name


def checked(name: str) -> str:
    """Return the name of a file, a log or a folder: parts of plain characters, none of them a way
    out of the place.

    Raises ``ValueError`` that says what is wrong with it.
    """
    parts = name.split("/")
    if len(name) > _LONGEST or len(parts) > _MOST_PARTS:
        raise ValueError(f"{name[:_LONGEST]!r} is too long or too deep for a name")
    for part in parts:
        if not _PART.fullmatch(part) or part in (".", "..") or part.startswith("draft-"):
            raise ValueError(
                f"{name!r} is no name: its parts are letters, digits and ._+=@:~- alone, and none "
                "is empty, '.', '..' or begins with 'draft-'"
            )
    return name


def checked_folder(name: str) -> str:
    """Return the name of a folder, such as ``replies``; ``""`` is the place itself.

    Raises ``ValueError`` that says what is wrong with it.
    """
    return checked(name) if name else name


def is_name(part: str) -> bool:
    """Return whether a file that was found may be called so."""
    try:
        return "/" not in checked(part)
    except ValueError:
        return False


def is_log(name: str) -> bool:
    """Return whether a name is a log's."""
    folder, _, rest = name.partition("/")
    return folder in LOG_FOLDERS and rest.endswith(_LOG) and "/" not in rest
