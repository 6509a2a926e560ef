"""Where torch's compiler keeps what it has compiled, and how that is told to it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

DIRECTORY = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable of the folder; torch reads it at each use."""

TRITON_DIRECTORY = "TRITON_CACHE_DIR"
"""That of Triton's, which torch sets below its own folder, once in a process."""

_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"
_SWITCHES = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}


def switched_off() -> str:
    """Return by which setting the user has switched torch's caches off, '' where they are on."""
    return next((f"{k}={v}" for k, v in _SWITCHES.items() if os.environ.get(k) == v), "")


def compiled_graphs() -> int:
    """Return how many graphs this process has compiled so far, as far as torch counts them."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters.get("stats", {}).get("unique_graphs", 0))


def users_folder() -> Path | None:
    """Return the folder that the user has chosen, None where that is left to torch.

    Torch writes its own choice into the environment, too.
    """
    told = os.environ.get(DIRECTORY)
    loaded = sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    if not told or (loaded and Path(told) == Path(loaded.default_cache_dir()).absolute()):
        return None
    return Path(told).absolute()


def use(folder: str | None) -> str | None:
    """Have torch compile in a folder from here on, None: where it likes; return the former one."""
    former = os.environ.pop(DIRECTORY, None)
    if former and Path(os.environ.get(TRITON_DIRECTORY, "")).is_relative_to(former):
        del os.environ[TRITON_DIRECTORY]
    if folder is not None:
        os.environ[DIRECTORY] = folder
    return former


def forgo_precompiled_headers() -> None:
    """Have no headers compiled beforehand, unless the user has said so.

    They lie outside the folder, 156 MB, and torch makes them on a new host even if all it needs is
    in its caches: that took 10 s there, and saved 3 s at the first compilation. Only the first one
    cannot have them: what is compiled with them has other names in torch's caches.
    """
    if _HEADERS in os.environ:
        return
    os.environ[_HEADERS] = "0"
    config: Any = sys.modules.get("torch._inductor.config")
    if hasattr(config, "cpp_cache_precompile_headers"):  # not in an older torch
        config.cpp_cache_precompile_headers = False
