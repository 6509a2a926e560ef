"""What is told of an exception that ended the training."""

from __future__ import annotations

import contextlib
import json
import os
import time
import traceback
from pathlib import Path

_TAIL = 8_000


def is_failure(error: BaseException) -> bool:
    """Whether the block ended because something failed: ``sys.exit(0)`` is none."""
    return not (isinstance(error, SystemExit) and error.code in (None, 0))


def describe(error: BaseException) -> dict[str, str]:
    """Return type, message and the tail of the traceback."""
    text = "".join(traceback.format_exception(error))
    return {"type": type(error).__name__, "message": str(error), "traceback": text[-_TAIL:]}


def write_error_file(failure: dict[str, str]) -> None:
    """Tell the agent, in the form of torch's ``@record``, in the file that it asked for."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    extra = {"py_callstack": failure["traceback"], "timestamp": str(int(time.time()))}
    message = f"{failure['type']}: {failure['message']}"
    with contextlib.suppress(OSError):
        Path(path).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
