"""Torch's MegaCache: what compilations left in the process, as torch itself packs it."""

from __future__ import annotations

import sys


def collect() -> bytes:
    """Return what was compiled so far, empty where there is nothing to save.

    Without ``torch._dynamo`` nothing can have been compiled, and torch would fail. To be called
    while nothing is compiled.
    """
    if "torch._dynamo" not in sys.modules:
        return b""
    import torch

    saved = torch.compiler.save_cache_artifacts()
    return saved[0] if saved else b""


def load(content: bytes) -> bool:
    """Have torch put what :func:`collect` returned where it looks; False where it cannot be read.

    It imports what compiles, which takes seconds.
    """
    import torch._dynamo

    return torch.compiler.load_cache_artifacts(content) is not None
