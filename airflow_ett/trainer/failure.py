"""What is told of an exception that ended the training."""

from __future__ import annotations

import contextlib
import json
import os
import time
import traceback
from pathlib import Path

from airflow_ett.trainer.masking import masked

_HEAD = 4_000
_TAIL = 8_000


def is_failure(error: BaseException) -> bool:
    """Whether the block ended because something failed: ``sys.exit(0)`` is none."""
    return not (isinstance(error, SystemExit) and error.code in (None, 0))


def describe(error: BaseException) -> dict[str, str]:
    """Return type, message and traceback, as :func:`told` has them."""
    text = "".join(traceback.format_exception(error))
    return told(type(error).__name__, str(error), text)


def told(kind: str, message: str, trace: str) -> dict[str, str]:
    """Return what may be written of an error: no secrets, a long message's head, the last calls."""
    return {
        "type": masked(kind)[:_HEAD],
        "message": masked(message)[:_HEAD],
        "traceback": masked(trace)[-_TAIL:],
    }


def write_error_file(failure: dict[str, str]) -> None:
    """Tell the agent, in the form of torch's ``@record``, in the file that it asked for."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    extra = {"py_callstack": failure["traceback"], "timestamp": str(int(time.time()))}
    message = f"{failure['type']}: {failure['message']}"
    with contextlib.suppress(OSError):
        Path(path).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
