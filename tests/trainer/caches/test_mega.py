"""Torch's MegaCache, whatever has been imported by then."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_ett.trainer.caches import mega


def test_s10_without_dynamo_there_is_nothing_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything imported for it."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert mega.collect() == b""


@pytest.mark.torch
def test_s10_the_order_of_imports_does_not_matter() -> None:
    """Before and after torch, and its compiler, are imported, and with nothing to load."""
    pytest.importorskip("torch")
    code = """
from airflow_ett.trainer.caches import mega
assert mega.collect() == b""
import sys, torch
assert mega.collect() == b""
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert mega.collect() == b""
assert mega.load(b"no such cache") is False
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
