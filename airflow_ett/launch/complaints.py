"""Errors by which a rank tells that another one has gone: never what failed first. Pure.

Who dies closes its connections before its process is over, so those that wait for it may well have
ended before it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TYPES = re.compile(r"Rendezvous\w*Error|Dist(Network|Store)Error")

_WORDS = re.compile(
    r"Connection (closed by peer|reset by peer|refused)|Broken pipe"
    r"|gloo.*(timeout|timed out|Read error|Write error)"
    r"|remote process exited or there was a network error"
    r"|NCCL communicator was aborted|ncclRemoteError|Watchdog caught collective operation timeout"
    r"|connection to the C10d store has failed|client socket has (failed|timed out)"
    r"|failed to recv, got 0 bytes|wait timeout after",
    re.IGNORECASE | re.DOTALL,
)
"""What gloo, NCCL and torch's stores say when a peer is gone."""


def is_complaint(error: Mapping[str, Any] | None) -> bool:
    """Tell whether an exception speaks of a peer that has gone."""
    if error is None:
        return False
    kind, message = str(error.get("type")), str(error.get("message"))
    return bool(_TYPES.search(kind) or _WORDS.search(message))
