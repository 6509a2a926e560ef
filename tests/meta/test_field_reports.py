"""A field report of these kinds has a test that names it: in its name, or in a docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPORTS = {
    "duplicate-submission": "R01 R02 R04 S02",
    "orphaned-remote-job": "R05 R06 R07 R08 R09",
    "wrong-cancel": "R10 R11 S05",
    "wrong-terminal-verdict": "R12 R14 R15 R16 S06",
    "attempt-state": "R18 R19 R20 S07 S13",
    "logs-and-diagnosis": "R21",
    "checkpoint-integrity": "R23 R24 R26",
    "resume-position": "R27",
    "timing-accounting": "R29 R30 R39",
    "storage-and-isolation": "R34 R35",
    "naming-and-limits": "R37 S15",
    "ui-plugin": "R31 R32 R33",
    "compile-cache": "R38 S10",
}
IDS = [report for kind in REPORTS.values() for report in kind.split()]


def named(path: Path) -> Iterator[str]:
    """Yield the ids that a file's tests name."""
    for node in ast.walk(ast.parse(path.read_text())):
        test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if isinstance(node, ast.Module) or test:
            yield from re.findall(r"\b[RS]\d\d\b", ast.get_docstring(node) or "")
        if isinstance(node, ast.FunctionDef) and test:
            parts = node.name.split("_")
            yield from (part.upper() for part in parts if re.fullmatch(r"[rs]\d\d", part))


@pytest.fixture(scope="module")
def told(repo: Path) -> set[str]:
    paths = (repo / "tests").rglob("test_*.py")
    return {report for path in paths if path != Path(__file__) for report in named(path)}


@pytest.mark.parametrize("report", IDS)
def test_a_field_report_has_its_test(told: set[str], report: str) -> None:
    assert report in told
