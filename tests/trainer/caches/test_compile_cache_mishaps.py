"""What goes wrong in the compile cache costs what was compiled, and neither more nor for good."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_ett.checkpoints import layout
from airflow_ett.trainer.caches import archive, compilecache, inductor, mega
from airflow_ett.trainer.caches.inductor import DIRECTORY, TRITON_DIRECTORY
from tests.trainer.caches.attempts import Attempt, Open

pytestmark = pytest.mark.usefixtures("machine")


def test_what_nobody_can_restore_is_kept_anew(
    begin: Open, saved: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of whatever kind, such as a MegaCache that torch cannot read may lead to."""
    with monkeypatch.context() as patch:
        patch.setattr(archive, "unpack", lambda *_, **__: 1 / 0)
        second = begin()
    second.compile("two")
    second.close()
    (missed, why), (kept, _) = second.outcomes
    assert (missed, kept) == ("missed", "saved")
    assert why == "cannot be unpacked: ZeroDivisionError('division by zero')"
    assert begin().kernels == ["two"]


def test_where_it_cannot_begin_torch_compiles_where_it_did_before(
    begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inductor, "forgo_precompiled_headers", lambda: 1 / 0)
    attempt = begin()
    assert attempt.outcomes == [("unable", "ZeroDivisionError('division by zero')")]
    assert DIRECTORY not in os.environ


def test_a_torch_without_precompiled_headers_is_left_alone(
    begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Config(ModuleType):
        """It refuses settings that it does not know."""

        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(name)

    monkeypatch.setattr(inductor.sys, "modules", {"torch._inductor.config": Config("config")})
    assert begin().outcomes == [("missed", "nothing was saved yet")]


def test_where_no_thread_can_be_had_the_training_goes_on(
    begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = begin()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        attempt.compile("one")
    assert attempt.outcomes[1:] == [("unable", repr(RuntimeError("can't start new thread")))]
    attempt.close()
    assert attempt.outcomes[2:] == [("saved", None)]


def test_without_torchs_own_archive_the_folder_is_kept_all_the_same(
    begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mega, "collect", lambda: 1 / 0)
    attempt = begin(mega=True)
    attempt.compile("one")
    attempt.close()
    told = [outcome for outcome, _ in attempt.outcomes]
    assert sorted(told) == ["missed", "saved", "unable"]


def test_after_a_hurried_end_the_next_session_has_a_folder_of_its_own(
    begin: Open, held: Any
) -> None:
    attempt = begin()
    attempt.compile("one")
    assert held.begun.acquire(timeout=10)
    former = attempt.folder
    attempt.close(hurried=True)
    assert DIRECTORY not in os.environ
    assert begin().folder != former
    assert former.exists(), "it is still being read"


def test_triton_follows_torch(begin: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch derives its folder from its own, once in a process."""
    monkeypatch.setenv(TRITON_DIRECTORY, "")
    attempt = begin()
    for follows in (True, False):
        folder = attempt.folder if follows else tmp_path
        monkeypatch.setenv(TRITON_DIRECTORY, str(folder / "triton" / "0"))
        attempt.close()
        assert (TRITON_DIRECTORY in os.environ) is not follows
        attempt = begin()


def test_a_file_system_that_connects_for_ever_is_not_waited_for(
    begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(compilecache, "_OPEN_S", 0.01)
    monkeypatch.setattr(layout, "folder", lambda _: answer.wait(5))
    attempt = begin(uri="sftp://host/cache")
    answer.set()
    assert attempt.outcomes == [("unable", "no answer within 0.01 s")]
    assert DIRECTORY not in os.environ
