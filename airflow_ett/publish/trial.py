"""The snapshot is tried before anybody sees it: in a fresh process, as a server would load it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints import Checkpoint
from airflow_ett.checkpoints.golden import GOLDEN
from airflow_ett.errors import PublishError
from airflow_ett.publish.credentials import without_credentials
from airflow_ett.publish.golden import tolerance_after
from airflow_ett.publish.registries.protocol import PROGRAM_FILE, WEIGHTS_FILE
from airflow_ett.publish.request import Request


def try_snapshot(folder: Path, request: Request, source: Checkpoint) -> dict[str, Any]:
    """Load and score the weights in a folder; with ``export`` put the model's program beside them.

    Returns what the manifest says of it::

        check    inputs       where the batch is from; None: there is none, so it is only loaded
                 shapes       of the outputs
                 in_memory    why the model had to be built in memory first; None: it had not
                 difference, tolerance    from the trainer's scores, of the largest absolute one;
                                          only where the checkpoint holds such
        code     module, sha256, distribution    the factory's
        program  file, rows | refused            only with ``export``

    Raises :class:`PublishError` that says what is wrong with the snapshot.
    """
    tolerance = request.tolerance
    if tolerance is None:
        tolerance = tolerance_after(request.cast)
    # Within the folder, so that whoever sweeps it up takes this along.
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=folder) as scratch:
        result = Path(scratch, "result.json")
        command = [sys.executable, "-m", "airflow_ett.publish.check"]
        command += ["--weights", str(folder / WEIGHTS_FILE), "--model", request.model]
        command += ["--transforms", ",".join(request.transforms), "--tolerance", str(tolerance)]
        command += ["--result", str(result)]
        if request.golden is not None:
            command += ["--batch", request.golden]
        elif GOLDEN in source.files:
            command += ["--golden", str(_fetched(source, Path(scratch)))]
        if request.exported:
            command += ["--program", str(folder / PROGRAM_FILE)]
        environ = without_credentials(os.environ)  # the factory is the user's code
        done = subprocess.run(command, stdin=subprocess.DEVNULL, env=environ, check=False)
        status = done.returncode
        try:
            outcome: dict[str, Any] = json.loads(result.read_bytes())
        except (FileNotFoundError, ValueError) as error:  # a half one, of a full disk
            what = f"the process that tried {request.model} ended with {status} and no result"
            more = ", for want of memory?" if status == -9 else ""
            raise PublishError(what + more) from error
    if "error" in outcome:
        what = f"the snapshot of {source.uri} does not work with {request.model}"
        raise PublishError(f"{what}: {outcome['error']}")
    told: dict[str, Any] = outcome["ok"]
    return told


def _fetched(source: Checkpoint, scratch: Path) -> Path:
    copy = scratch / GOLDEN
    with (source.path / GOLDEN).open("rb") as file, copy.open("wb") as target:
        shutil.copyfileobj(file, target)
    return copy
