"""What a registry can do: one small protocol, for ours and for others'."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from airflow_ett.checkpoints import FileDigest

WEIGHTS_FILE = "model.safetensors"
PROGRAM_FILE = "model.pt2"
MANIFEST_FILE = "manifest.json"
LATEST_FILE = "latest"


class Age(NamedTuple):
    """How new a model is: when its checkpoint was saved (UTC nanoseconds), and its cursor there."""

    saved_ns: int
    cursor: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version that is visible in a registry; ``uri`` is where it lies.

    ``manifest`` is the content of its :data:`MANIFEST_FILE`, which names all of its files with
    their sizes and digests.
    """

    uri: str
    manifest: Mapping[str, Any]

    @classmethod
    def decode(cls, uri: str, content: bytes) -> Snapshot:
        """Return the version whose manifest ``content`` is; raise ``ValueError`` for none."""
        try:
            snapshot = cls(uri, json.loads(content))
            _ = snapshot.version, snapshot.age, snapshot.source_digest, snapshot.digest
            if any("/" in name or name in ("", ".", "..") for name in snapshot.files):
                raise ValueError("a file's name is a path")
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise ValueError(f"it is no manifest of a version: {error!r}") from error
        return snapshot

    @property
    def version(self) -> str:
        """Its name in the registry."""
        return str(self.manifest["version"])

    @property
    def age(self) -> Age:
        """How new the model is, whenever it was published."""
        source = self.manifest["source"]
        return Age(int(source["saved_ns"]), int(source["cursor"]))

    @property
    def source_digest(self) -> str:
        """SHA-256 of the manifest of the checkpoint that it was made from."""
        return str(self.manifest["source"]["digest"])

    @property
    def digest(self) -> str:
        """SHA-256 of the weights' file."""
        return self.files[WEIGHTS_FILE].sha256

    @property
    def files(self) -> Mapping[str, FileDigest]:
        """Its files by name, with their sizes and digests; the manifest is not among them."""
        told = self.manifest["files"].items()
        return {name: FileDigest(int(file["bytes"]), str(file["sha256"])) for name, file in told}

    @property
    def bytes(self) -> int:
        """Size of all of its files together, without the manifest."""
        return sum(file.size for file in self.files.values())


class Registry(Protocol):
    """One model's versions. A version appears whole or not at all, and never changes.

    All methods raise :class:`airflow_ett.errors.PublishError` where the registry refuses or
    cannot be reached: the message says what was asked of which registry, and what to do.
    """

    def find(self, version: str) -> Snapshot | None:
        """Return a published version, or None where there is none.

        Raises :class:`PublishError` that names the file when it is there but damaged.
        """

    def staging(self, version: str) -> AbstractContextManager[Path]:
        """Give an empty folder on this host to prepare a version in, and remove it after."""

    def reveal(self, staged: Path, version: str) -> bool:
        """Make what was prepared visible, whole; False where another publisher was first.

        The folder holds the manifest and the files that it names, and nothing else.
        """

    def point_latest(self, snapshot: Snapshot, *, force: bool) -> bool:
        """Let ``latest`` name this version; return whether it does now.

        It stays where it is when it names a version of a greater :class:`Age`, unless ``force``.
        """

    def sweep(self) -> None:
        """Remove what publishers that died have left behind."""
