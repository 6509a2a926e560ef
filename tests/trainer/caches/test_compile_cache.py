"""What one attempt compiles, the next one has; what it has not is told, and harms nothing."""

from __future__ import annotations

import logging
import os
import re
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_ett.trainer.caches import compilecache, entry, inductor, key
from airflow_ett.trainer.caches.compilecache import CompileCache
from airflow_ett.trainer.caches.inductor import DIRECTORY
from airflow_ett.trainer.caches.store import CacheStore
from tests.trainer.caches.attempts import Attempt, Open

pytestmark = pytest.mark.usefixtures("machine")


def test_what_one_attempt_compiled_the_next_one_has(begin: Open, saved: Attempt) -> None:
    (missed, why), (kept, _) = saved.outcomes
    assert (missed, why, kept) == ("missed", "nothing was saved yet", "saved")
    second = begin()
    assert second.kernels == ["one"]
    assert second.phases == ["compile_cache_load"]
    (told,) = second.told
    assert told["outcome"] == "used"
    by = re.escape("dag.train run run generation 1, attempt 1.0.0")
    assert re.fullmatch(rf"saved \d+ s ago by {by}", told["reason"])
    assert told["duration_ns"] > 0
    assert told["bytes"] == saved.told[1]["bytes"] > 0


def test_nothing_is_written_where_all_was_found(begin: Open, saved: Attempt) -> None:
    second = begin()
    second.cache.keep()
    second.close()
    assert [outcome for outcome, _ in second.outcomes] == ["used"]


def test_what_is_compiled_later_is_kept_along(begin: Open, saved: Attempt) -> None:
    second = begin()
    second.compile("two")
    second.close()
    assert [outcome for outcome, _ in second.outcomes] == ["used", "saved"]
    assert begin().kernels == ["one", "two"]


def test_a_file_that_changes_its_size_is_kept_anew(begin: Open, saved: Attempt) -> None:
    second = begin()
    second.compile("one", "a longer kernel")
    second.close()
    assert (begin().folder / "ab" / "one.so").read_text() == "a longer kernel"


def test_afterwards_all_is_as_before(
    begin: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = begin()
    folder = attempt.folder
    assert folder.is_relative_to(tmp_path / f"airflow-ett-{os.getuid()}")
    assert os.environ[inductor._HEADERS] == "0"
    attempt.close()
    attempt.close()
    assert DIRECTORY not in os.environ
    assert not folder.exists()


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("software", {"torch": "2.14.0"}, "torch was 2.13.0, now 2.14.0"),
        ("machine", {"GPU": "H100"}, "GPU was A100, now H100"),
        ("digest_of", "other", "model code changed"),
    ],
)
def test_r38_a_change_is_a_miss_that_names_it(
    begin: Open,
    saved: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    value: Any,
    reason: str,
) -> None:
    monkeypatch.setattr(key, part, lambda *_: value)
    second = begin()
    assert second.outcomes == [("missed", reason)]
    assert second.kernels == []


def test_r38_another_world_size_is_a_miss_that_names_it(begin: Open, saved: Attempt) -> None:
    assert begin(world_size=4).outcomes == [("missed", "world size was 1, now 4")]


def test_r38_what_is_corrupt_is_a_miss_and_warned_of(
    begin: Open, saved: Attempt, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (blob,) = (cache / "compile").glob("*.bin")
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    second = begin()
    ((outcome, reason),) = second.outcomes
    assert (outcome, str(reason)[:8]) == ("missed", "corrupt:")
    (warned,) = (r for r in caplog.records if r.levelno == logging.WARNING)
    assert str(reason) in warned.getMessage()
    second.compile("one")
    second.close()
    assert begin().outcomes[0][0] == "used"


def test_what_cannot_be_unpacked_is_a_miss(
    begin: Open, saved: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry.archive, "_BESIDE", "none")
    monkeypatch.setattr(CacheStore, "read", lambda *_: (b"no archive", None))
    ((outcome, reason),) = begin().outcomes
    assert (outcome, str(reason)[:26]) == ("missed", "corrupt: it cannot be unpa")


def test_outside_a_launched_job_nothing_happens() -> None:
    attempt: Any = Attempt(1, "")
    cache = CompileCache(None, attempt, attempt)
    cache.open((), uri=None, max_bytes=1, mega=True)
    cache.keep()
    cache.close(hurried=False)
    assert (attempt.told, attempt.phases, DIRECTORY in os.environ) == ([], [], False)


def test_it_can_be_switched_off(begin: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETT_COMPILE_CACHE", "0")
    attempt = begin()
    attempt.cache.keep()
    attempt.close()
    assert attempt.outcomes == [("off", "ETT_COMPILE_CACHE=0")]
    assert DIRECTORY not in os.environ


def test_where_torch_caches_nothing_it_says_so(
    begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")
    reason = "TORCHINDUCTOR_FX_GRAPH_CACHE=0 switches torch's own caches off"
    assert begin().outcomes == [("unable", reason)]


def test_what_was_compiled_before_is_told(begin: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = ModuleType("torch._dynamo.utils")
    utils.counters = {"stats": {"unique_graphs": 3}}  # type: ignore[attr-defined]
    monkeypatch.setitem(inductor.sys.modules, "torch._dynamo.utils", utils)
    reason = "3 graphs were compiled before compile_cache() was called: too late"
    assert begin().outcomes == [("unable", reason), ("missed", "nothing was saved yet")]


def test_without_a_place_it_says_so() -> None:
    attempt = Attempt(1, "").open()
    assert attempt.outcomes == [("unable", "there is no place for it: set [ett] cache_root")]
    attempt.cache.keep()
    attempt.close()


def test_what_others_could_have_written_is_neither_used_nor_kept(
    begin: Open, saved: Attempt, cache: Path
) -> None:
    (cache / "compile").chmod(0o777)
    second = begin()
    second.compile("two")
    second.close()
    (missed, why), (unable, why_unable) = second.outcomes
    assert (missed, unable) == ("missed", "unable")
    assert str(why).startswith("not trusted: others can write to")
    assert why_unable == why


def test_a_place_that_cannot_be_written_is_told_once_and_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    attempt = Attempt(1, str(tmp_path / "file")).open()
    attempt.compile("one")
    attempt.compile("two")
    attempt.close()
    (missed, why), (unable, why_unable) = attempt.outcomes
    assert (missed, str(why)[:18]) == ("missed", "cannot be reached:")
    assert (unable, str(why_unable)[:18]) == ("unable", "cannot be written:")


def test_a_place_that_does_not_answer_is_not_waited_for(
    begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(entry, "_READ_S", 0.05)
    monkeypatch.setattr(CacheStore, "read", lambda *_: answer.wait(30))
    assert begin().outcomes == [("missed", "cannot be reached: no answer within 0.05 s")]
    answer.set()


def test_whatever_goes_wrong_is_told_and_not_raised(
    begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key, "machine", lambda: 1 / 0)
    attempt = begin()
    attempt.close()
    assert attempt.outcomes == [("unable", "ZeroDivisionError('division by zero')")]


def test_where_nothing_was_compiled_there_is_nothing_to_save(begin: Open) -> None:
    attempt = begin()
    attempt.close()
    assert attempt.outcomes[1:] == [("unable", "nothing to save: nothing was compiled")]
    assert DIRECTORY not in os.environ


def test_a_folder_that_the_user_chose_is_used_and_completed(
    begin: Open, saved: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = tmp_path / "chosen"
    (chosen / "ab").mkdir(parents=True)
    chosen.chmod(0o700)
    (chosen / "ab" / "mine.so").write_text("mine")
    monkeypatch.setenv(DIRECTORY, str(chosen))
    attempt = begin()
    assert (attempt.folder, attempt.kernels) == (chosen, ["mine", "one"])
    attempt.close()
    assert attempt.kernels == ["mine", "one"]


def test_a_chosen_folder_that_others_can_write_is_not_kept(
    begin: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    chosen.chmod(0o777)
    monkeypatch.setenv(DIRECTORY, str(chosen))
    ((outcome, reason),) = begin().outcomes
    assert outcome == "unable"
    assert f"others can write to {chosen}" in str(reason)
    assert os.environ[DIRECTORY] == str(chosen)


def test_what_torch_chose_by_itself_is_not_the_users(
    begin: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing ``torch._dynamo`` writes torch's own choice into the environment."""
    torchs: Any = ModuleType("cache_dir_utils")
    torchs.default_cache_dir = lambda: str(tmp_path / "torchinductor")
    config: Any = ModuleType("config")
    config.cpp_cache_precompile_headers = True
    loaded = {
        "torch._inductor.runtime.cache_dir_utils": torchs,
        "torch._inductor.config": config,
    }
    monkeypatch.setattr(inductor.sys, "modules", loaded)
    monkeypatch.setenv(DIRECTORY, str(tmp_path / "torchinductor"))
    assert begin().folder.is_relative_to(tmp_path / f"airflow-ett-{os.getuid()}")
    assert config.cpp_cache_precompile_headers is False


def test_what_the_user_says_about_headers_stands(
    begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(inductor._HEADERS, "1")
    begin()
    assert os.environ[inductor._HEADERS] == "1"


def test_the_ranks_of_a_node_share_what_one_restores_and_one_keeps(
    begin: Open, saved: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = [], CacheStore.read

    def count(store: CacheStore, name: str) -> Any:
        reads.append(name)
        return read(store, name)

    monkeypatch.setattr(CacheStore, "read", count)
    other = begin(7, local_rank=1)
    first = begin(7, local_rank=0)
    assert first.folder == other.folder
    assert len(reads) == 1
    assert first.outcomes == other.outcomes
    other.compile("another rank's")
    other.close()
    first.close()
    assert [outcome for outcome, _ in other.outcomes] == ["used"]
    assert [outcome for outcome, _ in first.outcomes] == ["used", "saved"]
    monkeypatch.delenv(DIRECTORY)  # the ranks are one process here
    assert begin().kernels == ["another rank's", "one"]


def test_one_save_at_a_time_the_latest_state_last(begin: Open, held: Any) -> None:
    attempt = begin()
    attempt.compile("one")
    assert held.begun.acquire(timeout=10)
    for name in ("two", "three", "four"):
        attempt.compile(name)
    assert len(held.writes) == 1
    held.set()
    attempt.close()
    assert len(held.writes) == 2
    assert begin().kernels == ["four", "one", "three", "two"]


def test_a_hurried_end_does_not_wait_and_does_not_take_away_what_is_read(
    begin: Open, held: Any
) -> None:
    attempt = begin()
    attempt.compile("one")
    assert held.begun.acquire(timeout=10)
    folder = attempt.folder
    attempt.close(hurried=True)
    assert folder.exists()


def test_an_end_waits_no_longer_than_it_says(
    begin: Open, held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilecache, "_CLOSE_S", 0.05)
    attempt = begin()
    attempt.compile("one")
    attempt.close()
    assert attempt.outcomes[-1] == ("unable", "what was compiled could not be kept within 0.05 s")


def test_a_place_of_ones_own_has_a_folder_per_tenant(
    begin: Open, tmp_path: Path, cache: Path
) -> None:
    attempt = begin(uri=f"{tmp_path}/shared/")
    attempt.compile("one")
    attempt.close()
    ((_, why), _) = attempt.outcomes
    assert why == "nothing was saved yet"
    (tenant,) = (tmp_path / "shared").iterdir()
    assert tenant.name.startswith("deployment-")
    assert [path.name for path in next(tenant.iterdir()).iterdir()] == ["compile"]
    assert not cache.exists()


def test_more_than_may_be_kept_is_told(begin: Open) -> None:
    attempt = begin(max_bytes=3)
    attempt.compile("one")
    attempt.close()
    assert attempt.outcomes[1:] == [("unable", "6 bytes are more than the 3 that may be kept")]
