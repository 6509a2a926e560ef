"""Where Slurm's commands are run. One small protocol, so that a cluster may be reached otherwise.

The worker's environment stays out of the commands but for what they need: ``SBATCH_*`` and the like
would change what is asked for, and ``sbatch`` would hand the rest to the job.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_ett.errors import LaunchError

TIMEOUT_S = 60.0
"""Longer than Slurm's own ``MessageTimeout`` (10 s), which its commands wait for twice or so."""

_NEEDED = (
    *("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME"),
    *("SLURM_CONF", "SLURM_JWT"),
)

_FORMAT = {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}
"""Times in seconds since 1970, and messages in English."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class Transport(Protocol):
    """Runs a command on a machine of the cluster."""

    def run(self, argv: Sequence[str], input: str | None = None) -> Result:
        """Run ``argv`` with ``input`` as its stdin and return how it ended.

        Raises :class:`LaunchError` where it could not be run, or gave no answer in time.
        """


class Local:
    """Runs the commands on this machine. They are found on the worker's PATH."""

    def run(self, argv: Sequence[str], input: str | None = None) -> Result:
        """See :class:`Transport`."""
        try:
            done = subprocess.run(
                argv,
                input=input or "",
                env=_environment(os.environ),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            raise LaunchError(
                f"there is no {argv[0]} on this machine's PATH: install Slurm's commands where "
                "Airflow's workers and triggerers run"
            ) from None
        except subprocess.TimeoutExpired:
            raise LaunchError(
                f"{argv[0]} gave no answer within {TIMEOUT_S:g} s: slurmctld or slurmdbd is "
                "overloaded or away"
            ) from None
        except OSError as error:
            raise LaunchError(f"{argv[0]} could not be run: {error}") from error
        return Result(done.returncode, done.stdout, done.stderr)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {**{name: environ[name] for name in _NEEDED if name in environ}, **_FORMAT}
