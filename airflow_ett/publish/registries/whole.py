"""Whether a published version is what its manifest says."""

from __future__ import annotations

from collections.abc import Callable

from airflow_ett.checkpoints import FileDigest
from airflow_ett.checkpoints.layout import Folder
from airflow_ett.errors import PublishError
from airflow_ett.publish.registries.protocol import MANIFEST_FILE, Snapshot


def read_whole(folder: Folder, digest: Callable[[Snapshot, str], FileDigest]) -> Snapshot:
    """Return the version in a folder after reading all of its files, which is what ``digest`` does.

    Raises :class:`PublishError` that names the file that is missing or damaged, and ``OSError``
    where nobody knows.
    """
    manifest = folder / MANIFEST_FILE
    try:
        snapshot = Snapshot.decode(str(folder), manifest.read_bytes())
    except (FileNotFoundError, ValueError) as error:
        raise _damaged(folder, manifest, error) from error
    if snapshot.version != folder.name:
        raise _damaged(folder, manifest, f"it is that of version {snapshot.version}")
    for name, expected in snapshot.files.items():
        try:
            found = digest(snapshot, name)
        except FileNotFoundError as error:
            raise _damaged(folder, folder / name, error) from error
        if found != expected:
            raise _damaged(folder, folder / name, f"{_told(found)} instead of {_told(expected)}")
    return snapshot


def _told(digest: FileDigest) -> str:
    return f"{digest.size} bytes with SHA-256 {digest.sha256}"


def _damaged(folder: Folder, file: Folder, problem: object) -> PublishError:
    return PublishError(
        f"{file} of a published version is damaged ({problem}); remove {folder} and publish "
        "again, or choose another version"
    )
