"""Names in paths and queries."""

import re
from typing import Annotated

from pydantic import AfterValidator

_LONGEST = 250
"""Characters of a name: as Airflow's own."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Return whether a database takes the text."""
    return _UNSTORABLE.search(text) is None


def _name(text: str) -> str:
    if not is_storable(text):
        raise ValueError("a name holds no NUL and no half of a character")
    if len(text) > _LONGEST:
        raise ValueError(f"a name has at most {_LONGEST} characters")
    return text


Name = Annotated[str, AfterValidator(_name)]
"""A name that a column can hold."""
