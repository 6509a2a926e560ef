"""A registry of one's own: ``pkg.module:factory``, called with the model's name.

What it returns has the methods of :class:`airflow_ett.publish.Registry`. Whatever they raise
arrives as :class:`PublishError`.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path

from airflow_ett.errors import ConfigurationError, EttError, PublishError
from airflow_ett.publish.registries.protocol import Registry, Snapshot

_METHODS = ("find", "staging", "reveal", "point_latest", "sweep")


class OwnRegistry:
    """The registry that a function makes.

    Raises :class:`ConfigurationError` where the function cannot be imported or called, or gives
    something else.
    """

    def __init__(self, factory: str, name: str) -> None:
        self._factory = factory
        module, _, function = factory.partition(":")
        try:
            self._registry: Registry = getattr(importlib.import_module(module), function)(name)
        except EttError:
            raise
        except Exception as error:  # another's code
            problem = f"{factory} gives none: {type(error).__name__}: {error}"
            raise ConfigurationError("registry", problem) from error
        lacking = [name for name in _METHODS if not callable(getattr(self._registry, name, None))]
        if lacking:
            kind = type(self._registry).__name__
            problem = f"{factory} gives a {kind}, which has no {', '.join(lacking)}"
            raise ConfigurationError("registry", problem)

    def find(self, version: str) -> Snapshot | None:
        """Return a published version, or None where there is none."""
        with self._told("find"):
            return self._registry.find(version)

    @contextlib.contextmanager
    def staging(self, version: str) -> Iterator[Path]:
        """Give an empty folder on this host to prepare a version in, and remove it after."""
        with contextlib.ExitStack() as stack:
            with self._told("staging"):
                folder = stack.enter_context(self._registry.staging(version))
            yield folder

    def reveal(self, staged: Path, version: str) -> bool:
        """Make what was prepared visible; False where another publisher was first."""
        with self._told("reveal"):
            return self._registry.reveal(staged, version)

    def point_latest(self, snapshot: Snapshot, *, force: bool) -> bool:
        """Let ``latest`` name this version; return whether it does now."""
        with self._told("point_latest"):
            return self._registry.point_latest(snapshot, force=force)

    def sweep(self) -> None:
        """Remove what publishers that died have left behind."""
        with self._told("sweep"):
            self._registry.sweep()

    @contextlib.contextmanager
    def _told(self, method: str) -> Iterator[None]:
        try:
            yield
        except EttError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            raise PublishError(f"registry {self._factory}: {method} failed: {text}") from error
