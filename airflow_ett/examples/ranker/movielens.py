"""MovieLens-100k: fetched from the wheel of ``recbole``, checked by digest, kept in a folder.

The file's terms forbid redistribution, so it is no part of this package.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from airflow_ett.errors import ConfigurationError

WHEEL = "recbole==1.2.1"
MEMBER = "recbole/dataset_example/ml-100k/ml-100k.inter"
SHA256 = "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff"
FILE = "ml-100k.inter"
UNAVAILABLE = "ml-100k.unavailable"


class Unavailable(Exception):
    """The data could not be fetched; the message says why in one line."""


def fetch(folder: Path) -> Path:
    """Return the path of the ratings below ``folder``, downloading them with pip if necessary.

    Raises :class:`Unavailable` when there is no way to get them. That is remembered in ``folder``:
    all attempts of a job must train on the same data, and none should wait for a network again.
    Raises :class:`ConfigurationError` when the file is not the one that we know.
    """
    target = folder / FILE
    note = folder / UNAVAILABLE
    if target.exists():
        _check(target.read_bytes(), str(target))
        return target
    if note.exists():
        raise Unavailable(f"{note.read_text().strip()} (remove {note} to try again)")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        content = _download(folder)
    except Unavailable as reason:
        note.write_text(f"{reason}\n")
        raise
    _check(content, f"{MEMBER} in the wheel {WHEEL}")
    draft = folder / f".{FILE}.{os.getpid()}"
    draft.write_bytes(content)
    return draft.replace(target)


def _download(folder: Path) -> bytes:
    with tempfile.TemporaryDirectory(dir=folder) as work:
        command = [sys.executable, "-m", "pip", "download", WHEEL, "--no-deps", "--dest", work]
        command += ["--only-binary", ":all:", "--quiet", "--disable-pip-version-check"]
        command += ["--retries", "1", "--timeout", "15"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(work).glob("*.whl"))
        if done.returncode or not wheels:
            lines = done.stderr.strip().splitlines() or ["no wheel"]
            raise Unavailable(f"pip could not download {WHEEL}: {lines[-1]}")
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                return wheel.read(MEMBER)
        except (zipfile.BadZipFile, KeyError) as error:
            raise Unavailable(f"the wheel {WHEEL} does not hold {MEMBER}: {error}") from error


def _check(content: bytes, origin: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise ConfigurationError(
            "--data",
            f"{origin} has SHA-256 {digest}, but MovieLens-100k has {SHA256}; remove it",
        )
