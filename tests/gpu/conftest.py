"""The trainer's job, on a GPU; without one everything here is skipped."""

from __future__ import annotations

import pytest

from tests.trainer.conftest import job

__all__ = ["job"]


@pytest.fixture(autouse=True)
def gpu() -> None:
    """Skip where there is no GPU."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU that torch can use")
