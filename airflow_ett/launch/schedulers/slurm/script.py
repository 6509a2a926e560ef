"""The two shell scripts of an app: what Slurm runs on its first node, and what that runs on each.

The environment does not go through ``sbatch`` or ``srun``, which would make two variables of one
with a comma: the task's script exports it, quoted, and only its owner can read it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from torchx.specs import Role, macros

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.slurm.folder import Folder, pattern

RANK0_VARIABLE = "TORCHX_RANK0_HOST"

_REPLICA = "\x1freplica\x1f"
"""Stands for the replica's number until the text is quoted: only the node knows it."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TASK = """#!/bin/bash
# What each node of app {app} runs.
{first}{exports}
cd {cwd} || exit
{setup}
[ ! -e "$1" ] || exit 143
{run}
"""

# With several nodes the first that fails has the others end, which srun itself would kill at once.
# It may fail before its trainers are up, when PATH and variables are no longer Slurm's.
_ONE_OF_SEVERAL = """tell="$(command -v scancel) --batch --signal=USR2 $SLURM_JOB_ID"
trap '[ $? = 0 ] || '"$tell" EXIT
"""

# USR1 says that somebody wants the job's end: Slurm itself would leave KillWait to the trainers,
# which have been promised more. USR2 says that a node has failed, HUP that the time limit is as
# near as the trainers' grace is long (or that the job is preempted, where the cluster is set so).
# SIGTERM is Slurm's own; srun has it, too, and ends by itself. Who is not up yet when SIGTERM is
# sent does not get it, and finds the file then. An srun that waits for its step, where the node is
# not rid of another one, hears of no signal to it. scancel may try for half a minute what can no
# longer be done, and a signal would end the last wait with a code of its own.
_BATCH = """#!/bin/bash
# App {app} of airflow-ett.
folder={folder}
asked= failed= limit= told=
trap asked=1 USR1
trap failed=1 USR2
trap limit=1 HUP
trap : TERM
if [ "$(cat "$folder/job" 2>/dev/null)" != "$SLURM_JOB_ID" ]; then
  echo "$SLURM_JOB_ID" > "$folder/.job.$SLURM_JOB_ID"
  mv "$folder/.job.$SLURM_JOB_ID" "$folder/job"
fi
if [ -e "$folder/cancel" ] || [ "$(cat "$folder/over" 2>/dev/null)" = "$SLURM_JOB_ID" ]; then
  scancel "$SLURM_JOB_ID"
  exit 143
fi
export {rank0}="$SLURMD_NODENAME"
end="$folder/.end.$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}"
srun --export=ALL --kill-on-bad-exit=0 --wait=0 {cpus}--open-mode=append --output={output} \\
  bash "$folder/task" "$end" &
step=$!
while kill -0 "$step" 2>/dev/null; do
  if [ "$asked$failed$limit" ] && [ ! "$told" ]; then
    told=1
    : > "$end"
    (
      scancel --signal=TERM "$SLURM_JOB_ID"
      sleep {grace}
      scancel --signal=KILL "$SLURM_JOB_ID.0"
      sleep 2
      kill -KILL "$step"
    ) &
  fi
  wait "$step"
done
trap '' USR1 USR2 HUP
wait "$step"
code=$?
[ ! "$asked" ] || scancel "$SLURM_JOB_ID"
{after}exit "$code"
"""

_RETRY = """starts=${{SLURM_RESTART_COUNT:-0}}
if [ "$code" != 0 ] && [ ! "$asked" ] && [ "$starts" -lt {most} ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
"""

# What Slurm ends has ended by TIMEOUT or PREEMPTED, whereas this script's own end would be FAILED.
# It comes sooner with a limit that has passed already; a preempted job's stays as it is.
_LIMIT = """if [ "$limit" ] && [ "$code" != 0 ] && [ ! "$asked" ]; then
  scontrol update JobId="$SLURM_JOB_ID" TimeLimit=$((SECONDS < 120 ? 1 : SECONDS / 60))
  sleep {patience} &
  wait $!
fi
"""

_LATE_S = 120
"""How much later than the time limit Slurm may end a job, unless OverTimeLimit is longer."""


def batch_script(app: str, folder: Folder, role: Role, grace_s: int) -> str:
    """Return what ``sbatch`` reads from stdin."""
    output = pattern(folder.log(role.name, ""), "%t")
    return _BATCH.format(
        app=app,
        folder=shlex.quote(str(folder.path)),
        rank0=RANK0_VARIABLE,
        cpus=f"--cpus-per-task={role.resource.cpu} " if role.resource.cpu > 0 else "",
        output=shlex.quote(output),
        grace=grace_s,
        after=_RETRY.format(most=role.max_retries)
        if role.max_retries > 0
        else _LIMIT.format(patience=grace_s + _LATE_S),
    )


def task_script(app: str, role: Role, cwd: str, setup: str | None) -> str:
    """Return what each node runs.

    Raises :class:`LaunchError` where a variable's name, or what a text contains, suits no shell.
    """
    filled = macros.Values(
        img_root=cwd, app_id=app, replica_id=_REPLICA, rank0_env=RANK0_VARIABLE
    ).apply(role)
    command = " ".join(_quoted(app, part) for part in (filled.entrypoint, *filled.args))
    several = role.num_replicas > 1
    return _TASK.format(
        app=app,
        first=_ONE_OF_SEVERAL if several else "",
        exports="\n".join(_exports(app, filled.env)),
        cwd=shlex.quote(cwd),
        setup=setup or "",
        run=f"trap : TERM\n{command}" if several else f"exec {command}",
    )


def _exports(app: str, env: Mapping[str, str]) -> list[str]:
    for name in env:
        if not _NAME.fullmatch(name):
            raise LaunchError(
                f"app {app} cannot have a variable {name!r}: a shell's are made of letters, digits "
                "and _. Rename it in env"
            )
    return [f"export {name}={_quoted(app, value)}" for name, value in env.items()]


def _quoted(app: str, text: str) -> str:
    if "\0" in text:
        raise LaunchError(f"app {app}: NUL cannot be in a variable or an argument: {text[:60]!r}")
    return shlex.quote(text).replace(_REPLICA, "'\"$SLURM_PROCID\"'")
