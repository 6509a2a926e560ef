"""What compiled code depends on, and why none of what is kept fits.

Torch has keys of its own for each graph and kernel. Two things make a key above them necessary.
What torch leaves out: a graph that was generated for one instruction set is found on a machine with
another, where it computes nonsense. And a word on why nothing was found: of what is in torch's
keys, that which changes all of them is in this one.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from airflow_ett.trainer.place import Place

CODE = "model code"
_CPUINFO = Path("/proc/cpuinfo")
_FLAGS = ("flags", "Features")

Parts = Mapping[str, str]
"""What compiled code depends on: a name for people, and its present value."""


def parts(place: Place, code: Sequence[Any]) -> Parts:
    """Return what the code that is compiled here depends on. Imports torch."""
    return {**software(), **machine(), **world(place), CODE: digest_of(code)}


def name(parts: Parts) -> str:
    """Return the name under which an entry with these parts is kept."""
    text = json.dumps(dict(parts), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def why_missed(parts: Parts, kept: Sequence[Parts]) -> str:
    """Return why none of what is kept fits: what is different in the one that fits best.

    The most recently used ones come first in ``kept``.
    """
    if not kept:
        return "nothing was saved yet"
    nearest = max(kept, key=lambda other: sum(other.get(k) == v for k, v in parts.items()))
    names = [*parts, *(other for other in nearest if other not in parts)]
    return "; ".join(
        _difference(name, nearest.get(name), parts.get(name))
        for name in names
        if nearest.get(name) != parts.get(name)
    )


def software() -> Parts:
    """Return what generates and builds the code.

    Where torch and Python lie is part of each kernel's compiler command, and so of torch's keys.
    """
    from importlib import metadata  # it takes a while, which a Session without a cache is spared

    import torch

    triton = ""
    with suppress(metadata.PackageNotFoundError):
        triton = metadata.version("triton")
    return {
        "torch": str(torch.__version__),
        "torch's folder": str(Path(torch.__file__).parent),
        "Triton": triton,
        "Python": f"{sysconfig.get_config_var('SOABI')} in {sysconfig.get_path('include')}",
        "C++ compiler": f"{_compiler()}, {' '.join(platform.libc_ver())}",
    }


def machine() -> Parts:
    """Return what the code is built for: kernels are built for the CPU on which they are built.

    CPU code is generated for a number of threads, too; on a GPU there is too little of it to count.
    """
    import torch

    version = torch.version.cuda or torch.version.hip
    if torch.cuda.is_available():
        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        return {
            **_processor(torch),
            "GPU": f"{facts.name} ({facts.major}.{facts.minor})",
            "CUDA": str(version),
        }
    return {**_processor(torch), "GPU": "", "threads": str(torch.get_num_threads())}


def world(place: Place) -> Parts:
    """Return the shape of the training: ranks know their number, and compile accordingly."""
    return {
        "world size": str(place.world_size),
        "ranks per node": os.environ.get("LOCAL_WORLD_SIZE", "1"),
        "node": str(place.node),
    }


def digest_of(code: Sequence[Any]) -> str:
    """Return a digest of the files in which models, functions, classes and modules are defined.

    For nothing, of the main script. Of a model, all its modules count but torch's own.
    """
    modules = {name for one in code for name in _modules(one)} if code else {"__main__"}
    digests = sorted(filter(None, map(_source, modules)))
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _difference(name: str, was: str | None, now: str | None) -> str:
    if name == CODE:
        return f"{name} changed"
    return f"{name} was {was or 'none'}, now {now or 'none'}"


def _compiler() -> str:
    command = os.environ.get("CXX") or "g++"
    try:
        answer = subprocess.run(
            [command, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "none"
    return f"{command}: {answer.stdout.partition(chr(10))[0]}"


def _processor(torch: Any) -> Parts:
    model, flags = platform.machine(), ""
    with suppress(OSError):
        for line in _CPUINFO.read_text().split("\n\n")[0].splitlines():
            field, _, value = (part.strip() for part in line.partition(":"))
            model = value if field == "model name" else model
            flags = " ".join(sorted(value.split())) if field in _FLAGS else flags
    digest = hashlib.sha256(flags.encode()).hexdigest()[:8]
    return {"CPU": f"{model} ({torch.backends.cpu.get_cpu_capability()}, flags {digest})"}


def _modules(one: Any) -> Iterable[str]:
    """Yield the names of the Python modules in which something is defined."""
    if isinstance(one, ModuleType):
        yield one.__name__
    elif isinstance(one, type):
        yield from (base.__module__ for base in one.__mro__ if not _is_torch(base.__module__))
    elif callable(getattr(one, "modules", None)):
        for kind in {type(module) for module in one.modules()}:
            yield from _modules(kind)
    else:
        yield getattr(one, "__module__", None) or type(one).__module__


def _is_torch(module: str) -> bool:
    return module.partition(".")[0] in ("torch", "builtins")


def _source(module: str) -> str:
    """Return the digest of a module's file, '' where there is none, as in a console."""
    path = getattr(sys.modules.get(module), "__file__", None)
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""
