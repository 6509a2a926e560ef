"""No secret in what is written of an error: there is no masker of Airflow's where trainers run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_SENSITIVE = re.compile(
    "token(?!i[sz])|secret|passw|passphrase|credential|_pwd|(api|access|private)_?key",
    re.IGNORECASE,
)
"""In a variable's name; a tokenizer is none."""

_SHORTEST = 6
"""Characters; whatever is shorter stands in too many texts for another reason."""


def masked(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return ``text`` with ``***`` in place of the values of variables with sensitive names.

    Of a value of several lines, such as a key, each line counts, as texts may hold it quoted.
    """
    secrets = {
        line.strip()
        for name, value in environ.items()
        if _SENSITIVE.search(name)
        for line in value.splitlines()
    }
    # The longest first: one may be a part of another.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "***")
    return text
