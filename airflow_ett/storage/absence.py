"""What fsspec's file systems mean when they raise."""

from __future__ import annotations


def is_absence(error: Exception) -> bool:
    """Return whether a file is not there; of a bucket that is not there nobody knows the files."""
    return isinstance(error, FileNotFoundError) and code(error) != "NoSuchBucket"


def code(error: BaseException) -> str:
    """Return an S3 server's word for an error, '' where there is none."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
