"""Who may write what of a job in the API: the launchers all of it, its trainers their own part.

Writers' names tell launchers (and who else writes from Airflow's side) from trainers: a trainer may
be called anything that is none of theirs.
"""

from __future__ import annotations

from airflow_ett.events import Kind
from airflow_ett.storage.names import LOG_FOLDERS
from airflow_ett.storage.tokens import Role

LAUNCHER_FOLDER, NODE_FOLDER = LOG_FOLDERS

LAUNCHER_WRITERS = ("launcher-", "airflow-", "publish-")
"""How the names of those begin whose logs lie in ``launcher``: of a claim's holder, of a note of
Airflow's api-server or scheduler, of a publishing task."""

LAUNCHER_KINDS = frozenset(
    {
        *(Kind.JOB_OPENED, Kind.CLAIMED, Kind.SUBMIT_INTENDED, Kind.SUBMITTED, Kind.ADOPTED),
        *(Kind.SCHEDULER_STATE, Kind.CANCEL_REQUESTED, Kind.USER_RESTART, Kind.ATTEMPT_ENDED),
        *(Kind.JOB_ENDED, Kind.PUBLISHED, Kind.AIRFLOW_STATE),
    }
)
"""What only launchers tell: whose job it is, how it was launched, how it ended."""

MOST_BODY = 8 * 2**20
"""Bytes of a request, also once it is unpacked."""

MOST_FILE = 2**20
"""Bytes of a file."""

MOST_LINES = 10_000
"""Events of a request."""

MOST_LINE = 2**20
"""Bytes of an event."""

_TRAINERS_FOLDERS = ("nodes/", "replies/", ".lease/")
_TRAINERS_FILES = ("cursor",)


def folder_of(writer: str) -> str:
    """Return the folder in which a writer's log lies."""
    return LAUNCHER_FOLDER if writer.startswith(LAUNCHER_WRITERS) else NODE_FOLDER


def may_append(role: Role, writer: str, kind: str) -> bool:
    """Return whether a token of this role may append a writer's event of this kind."""
    own = folder_of(writer) == NODE_FOLDER and kind not in LAUNCHER_KINDS
    return role is Role.LAUNCHER or own


def may_write(role: Role, name: str) -> bool:
    """Return whether a token of this role may make or write a file of this name."""
    own = name in _TRAINERS_FILES or name.startswith(_TRAINERS_FOLDERS)
    return role is Role.LAUNCHER or own


def may_remove(role: Role) -> bool:
    """Return whether a token of this role may remove files."""
    return role is Role.LAUNCHER
