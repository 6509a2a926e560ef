"""Checkpoints on disk: layout, manifest, commit, newest, retention. Standard library only."""

from airflow_ett.checkpoints.catalog import (
    Checkpoint,
    list_checkpoints,
    newest_committed,
    newest_verified,
    open_checkpoint,
    verify,
)
from airflow_ett.checkpoints.commit import commit, discard, retain
from airflow_ett.checkpoints.layout import folder_name, local_path
from airflow_ett.checkpoints.manifest import FileDigest, Manifest

__all__ = [
    "Checkpoint",
    "FileDigest",
    "Manifest",
    "commit",
    "discard",
    "folder_name",
    "list_checkpoints",
    "local_path",
    "newest_committed",
    "newest_verified",
    "open_checkpoint",
    "retain",
    "verify",
]
