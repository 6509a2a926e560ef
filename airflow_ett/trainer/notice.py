"""Why an agent stops its workers, told beside SIGTERM: ranks save together only while all live.

The agent writes it into a file in its own folder before it sends the signal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

VARIABLE = "ETT_STOP"
"""Environment variable that names the file; unset where another launcher than our agent started."""


class Notice(NamedTuple):
    """What a worker is told with SIGTERM.

    ``preemption``: the signal came from outside and no rank is known to have failed; otherwise a
    peer is gone, and whatever needs all ranks would hang. ``grace_s`` is the time to SIGKILL.
    """

    preemption: bool
    grace_s: float


def has_agent(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether our agent started this process, or one that it comes from."""
    return VARIABLE in environ


def write_notice(path: Path, notice: Notice) -> None:
    """Put the notice where the workers look for it. Raises ``OSError``."""
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(notice._asdict()))
    draft.replace(path)


def read_notice(environ: Mapping[str, str] = os.environ) -> Notice | None:
    """Return the agent's notice, None where it gave none or there is no agent."""
    try:
        fields = json.loads(Path(environ[VARIABLE]).read_text())
        return Notice(bool(fields["preemption"]), float(fields["grace_s"]))
    except (OSError, KeyError, ValueError, TypeError):
        return None
