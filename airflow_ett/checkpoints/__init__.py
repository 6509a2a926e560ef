"""Checkpoints, on disk or behind a URI: layout, manifest, commit, newest, retention.

Standard library only; fsspec for URIs with a scheme of their own.
"""

from airflow_ett.checkpoints.catalog import (
    Checkpoint,
    list_checkpoints,
    newest_committed,
    newest_verified,
    open_checkpoint,
    verify,
)
from airflow_ett.checkpoints.commit import commit, discard, retain
from airflow_ett.checkpoints.layout import folder, folder_name
from airflow_ett.checkpoints.manifest import FileDigest, Manifest

__all__ = [
    "Checkpoint",
    "FileDigest",
    "Manifest",
    "commit",
    "discard",
    "folder",
    "folder_name",
    "list_checkpoints",
    "newest_committed",
    "newest_verified",
    "open_checkpoint",
    "retain",
    "verify",
]
