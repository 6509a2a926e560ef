"""What a login on a cluster has: found out once per session, and all that Slurm's commands get.

Slurm is often there for logins alone (a module, a file in ``/etc/profile.d``), and a command by ssh
is none. A login shell for each question would cost seconds, and print what it likes among the
answers.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_ett.launch.schedulers.slurm.transport import FORMAT

_NEEDED = ("HOME", "USER", "LOGNAME", "PATH", "LD_LIBRARY_PATH", "SLURM_CONF")

_MARK = "ett:"

# bash, since a user's own shell may be one that has no way to ask for a login's environment.
ASK = shlex.join(
    (
        *("bash", "-lc"),
        f'for n in {" ".join(_NEEDED)}; do printf "\\n{_MARK}%s=%s\\n" "$n" "${{!n}}"; done',
    )
)
"""The command that tells; profiles may print more."""


@dataclass(frozen=True, slots=True)
class Login:
    """The variables of a login."""

    environment: Mapping[str, str]

    @classmethod
    def read(cls, told: str) -> Login:
        """Read what :data:`ASK` prints."""
        lines = [line[len(_MARK) :] for line in told.splitlines() if line.startswith(_MARK)]
        pairs = (line.partition("=") for line in lines)
        return cls({name: value for name, _, value in pairs if value})

    def path(self, text: str) -> Path:
        """Return an absolute path: one below the home where it begins with ``~/``."""
        home = Path(self.environment.get("HOME", "/"))
        return home / text.removeprefix("~/") if text.startswith("~/") else Path(text)

    def command(self, argv: Sequence[str]) -> str:
        """Return what a shell there is told so that ``argv`` runs in this environment alone."""
        environment = {**self.environment, **FORMAT}
        return shlex.join(("env", "-i", *(f"{k}={v}" for k, v in environment.items()), *argv))
