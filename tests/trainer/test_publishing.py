"""How the first rank runs the publisher: whatever comes of it, no rank waits for it in vain."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.trainer.publishing import publish

OPTIONS = {"model": "a:b", "registry": "/r", "name": "n"}


class Stopping:
    """SIGTERM, which has come once a file is there."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def received_ns(self) -> int | None:
        """When it came."""
        return 1 if self._file.exists() else None


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Publish with a shell script in place of the publisher; ``stop`` is a file it may make."""

    def publishing(script: str, **options: Any) -> Any:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        saver: Any = SimpleNamespace(
            ranks=SimpleNamespace(first=True, share=lambda value: value),
            commit=lambda: (tmp_path / "committed").write_text("c") and "/c",
        )
        phases: Any = SimpleNamespace(begin=lambda _: contextlib.nullcontext())
        termination: Any = Stopping(tmp_path / "stop")
        return publish(saver, phases, termination, {**OPTIONS, **options})

    return publishing


def test_the_flags_are_the_commands(run: Callable[..., Any], tmp_path: Path) -> None:
    more = {"transforms": ("int8", "export"), "tolerance": 0.5, "force_latest": True}
    assert run('echo "$@" > flags; echo "{}"', version=None, **more) == {}
    flags = (tmp_path / "flags").read_text().split()
    expected = "--model=a:b --registry=/r --name=n --transforms=int8,export --tolerance=0.5"
    assert flags[:2] == ["-m", "airflow_ett.publish"]
    assert flags[2:] == [*expected.split(), "--force-latest", "--checkpoint=/c"]


def test_the_result_is_found_among_whatever_the_models_code_prints(
    run: Callable[..., Any],
) -> None:
    told = run(r"""printf '\377 words\n'; echo '{"version": "v"}'; echo 7; echo '{no json'""")
    assert told == {"version": "v"}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'not published: no room' >&2; exit 1", "^no room$"),
        ("exit 3", "exit code 3"),
        ("echo words", "told no result"),
        (r"printf '\377' >&2; exit 1", "\ufffd"),
    ],
)
def test_what_went_wrong_is_said(run: Callable[..., Any], script: str, message: str) -> None:
    with pytest.raises(PublishError, match=message):
        run(script)


def test_a_publisher_that_cannot_be_started_is_told(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("embedded null byte")

    monkeypatch.setattr("subprocess.Popen", refuse)
    with pytest.raises(PublishError, match="embedded null byte"):
        run("exit 0")


def test_a_signal_to_the_whole_group_is_no_failure(run: Callable[..., Any]) -> None:
    assert run("touch stop; exit 143") is None


def test_a_value_of_another_kind_is_refused_before_anything_is_saved(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    """On all ranks: they all look at their own arguments."""
    with pytest.raises(ConfigurationError, match=r"golden: .* is no text and no number"):
        run("exit 0", golden=object())
    assert not (tmp_path / "committed").exists()
