"""Causes and sizes in words."""

import pytest

from airflow_ett.ui.words import cause, size
from tests.ui.run.showing import words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("out_of_memory", "Out of memory"),
        ("vanished", "Vanished"),
        ("user_restart", "Restarted by a user"),
        ("of their own", "Of their own"),
        ("", "Unknown"),
        (None, "Unknown"),
    ],
)
def test_causes_inwords(name: str | None, words: str) -> None:
    assert cause(name) == words


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (2**30 - 1, "1.0 GiB"),
        (45_298_666_701, "42.2 GiB"),
        (2**70, "1048576.0 PiB"),
    ],
)
def test_sizes(count: int | None, text: str) -> None:
    assert words(size(count)) == text
