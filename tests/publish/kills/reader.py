"""A reader of a registry who trusts nobody: whatever it sees must be whole."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints.layout import Folder

HIDDEN = "."


class Reader:
    """Reads one model's versions in a folder or an object store over and over, in a thread.

    ``looks`` counts how often all was whole, ``broken`` holds what was not.
    """

    def __init__(self, shelf: Folder) -> None:
        self.shelf = shelf
        self.looks = 0
        self.broken: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def look(self) -> dict[str, str]:
        """Return the digest of each version's weights; raise ``AssertionError`` for a broken one.

        ``latest`` is read first: what it names must be there.
        """
        latest = self._latest()
        found = {}
        for folder in self._folders():
            manifest = self._manifest(folder)
            if manifest is None:
                continue
            for name, told in manifest["files"].items():
                content = (folder / told.get("path", name)).read_bytes()
                assert len(content) == told["bytes"], f"{folder}: {name} has another size"
                digest = hashlib.sha256(content).hexdigest()
                assert digest == told["sha256"], f"{folder}: {name} has another digest"
            found[folder.name] = str(manifest["files"]["model.safetensors"]["sha256"])
        assert latest is None or latest in found, f"latest names {latest}, and there is {found}"
        return found

    def _poll(self) -> None:
        while not self._over.wait(0.005):
            try:
                self.look()
                self.looks += 1
            except Exception as error:
                self.broken.append(repr(error))

    def _folders(self) -> list[Folder]:
        try:
            entries: list[Folder] = [*self.shelf.iterdir()]
        except FileNotFoundError:
            return []
        return [path for path in entries if path.name[0] != HIDDEN and path.is_dir()]

    def _manifest(self, folder: Folder) -> Any:
        """Return a version's manifest, None where the manifest is what makes the version."""
        try:
            return json.loads((folder / "manifest.json").read_bytes())
        except FileNotFoundError:
            assert not isinstance(folder, Path), f"{folder} is visible without a manifest"
            return None

    def _latest(self) -> str | None:
        try:
            return (self.shelf / "latest").read_text().strip()
        except FileNotFoundError:
            return None
