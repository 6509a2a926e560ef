"""Which values ``sbatch`` takes for its options, as far as that shows without a cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from airflow_ett.launch.schedulers.slurm.hostlist import expand

_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|-1|infinite|unlimited", re.IGNORECASE)
_MEM = re.compile(r"\d+[KMGT]?B?", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CONNECTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

_MAIL_TYPES = ("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT",
               "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50",
               "ARRAY_TASKS")  # fmt: skip


def problem(cfg: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first option whose value no Slurm takes, and why; None where all may do."""
    for name, check in _CHECKS.items():
        value = cfg.get(name)
        if value is not None and (text := check(value)):
            return name, f"{name}: {value!r} {text}"
    return None


def is_host(name: str) -> bool:
    """Tell whether a text can be the name of one node."""
    return _HOST.fullmatch(name) is not None


def is_file(nodes: str) -> bool:
    """Tell whether nodes are named in a file, which only ``sbatch`` reads."""
    return "/" in nodes


def is_connection(conn_id: str) -> bool:
    """Tell whether a connection's id can be a part of an app's, and so of a handle."""
    return _CONNECTION.fullmatch(conn_id) is not None


def _time(text: str) -> str | None:
    if _TIME.fullmatch(text):
        return None
    return "is no time: it is minutes, h:min:s or days-hours, such as 90, 12:00:00 or 7-00"


def _mem(text: str) -> str | None:
    return None if _MEM.fullmatch(text) else "is no memory: it is 1500M, 64G or the like, 0 for all"


def _mail_type(text: str) -> str | None:
    unknown = [word for word in text.split(",") if word.strip().upper() not in _MAIL_TYPES]
    return f"is not made of {', '.join(_MAIL_TYPES)}" if unknown else None


def _nodes(text: str) -> str | None:
    if is_file(text):
        return None
    try:
        names = expand(text)
    except ValueError:
        names = []
    return None if names and all(map(is_host, names)) else "is no list of nodes: it is n1,gpu[2-4]"


def _connection(conn_id: str) -> str | None:
    if is_connection(conn_id):
        return None
    return "can be no part of a handle: name a connection by letters, digits and . _ - alone"


def _cwd(path: str) -> str | None:
    if PurePosixPath(path).is_absolute():
        return None
    return "is no absolute path, and nodes know no other"


def _grace(seconds: int) -> str | None:
    return "seconds are no time to give" if seconds < 0 else None


_CHECKS: Mapping[str, Callable[[Any], str | None]] = {
    "time": _time,
    "mem": _mem,
    "mail_type": _mail_type,
    "nodelist": _nodes,
    "exclude": _nodes,
    "grace_s": _grace,
    "cwd": _cwd,
    "ssh_conn_id": _connection,
}
