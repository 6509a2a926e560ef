"""The random numbers' states: torch's on the CPU and on its GPUs, NumPy's, and Python's own.

Plain numbers and tensors only, so that they are read back without running anything. What the
process has not imported or used is left out, and never imported for it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any


def capture() -> dict[str, Any]:
    """Return where all of them stand."""
    import torch

    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        state: dict[str, Any] = numpy.get_state(legacy=False)
        inner = {**state["state"], "key": torch.tensor(state["state"]["key"].astype("int64"))}
        states["numpy"] = {**state, "state": inner}
    return states


def put_back(states: Mapping[str, Any]) -> None:
    """Let the numbers go on from what :func:`capture` returned, as far as they are in use here."""
    import torch

    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available():
        for device, state in enumerate(states.get("cuda", ())[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, device)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and "numpy" in states:
        state = states["numpy"]
        inner = {**state["state"], "key": state["state"]["key"].numpy().astype("uint32")}
        numpy.set_state({**state, "state": inner})
