"""What the examples' command lines have in common."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Return a whole number above 0; argparse tells of any other."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be positive, not {value}")
    return value
