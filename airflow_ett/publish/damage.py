"""Weights that are not finite: counted over the whole model, then told in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from airflow_ett.checkpoints.layout import Folder
from airflow_ett.errors import PublishError
from airflow_ett.publish.metadata import Stored


class Damage:
    """What is not finite in a checkpoint's tensors, or not any more as they are written."""

    def __init__(self, folder: Folder, stored: Mapping[str, Stored]) -> None:
        self._folder = folder
        self._stored = stored
        self._saved: Counter[str] = Counter()
        self._written: Counter[str] = Counter()

    def look_at(self, name: str, saved: Any, written: Any) -> None:
        """Count among values as they were saved, and as they are written, perhaps in a cast."""
        if _all_finite(written):
            return
        if count := _count(saved):
            self._saved[name] += count
        else:
            self._written[name] += _count(written)

    def tell(self) -> None:
        """Raise :class:`PublishError` if there is any."""
        for found, problem in (
            (self._saved, "NaN or infinite; publish an earlier checkpoint"),
            (self._written, "too large for the cast; choose bfloat16, or none"),
        ):
            if found:
                (name, count), *others = found.items()
                values = f"{count} of {self._stored[name].values} values of {name}"
                more = f" (and some of {len(others)} other tensors)" if others else ""
                raise PublishError(f"{self._folder}: {values}{more} are {problem}")


def _all_finite(values: Any) -> bool:
    """Whether all are, without a copy of them."""
    if not (values.is_floating_point() or values.is_complex()):
        return True
    return all(bool(bound.isfinite()) for bound in _comparable(values).aminmax())


def _count(values: Any) -> int:
    return int((~_comparable(values).isfinite()).sum())


def _comparable(values: Any) -> Any:
    """Return the same values in a dtype that torch can compare: not all of its own."""
    if values.is_complex():
        return torch.view_as_real(values.resolve_conj())
    return values.float() if values.itemsize == 1 else values
