"""The lease of a checkpoint directory: who holds it, who finds out, what never is in the way."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.checkpoints import leasefiles
from airflow_ett.checkpoints.holder import SILENT_AFTER_S
from airflow_ett.checkpoints.lease import Lease
from airflow_ett.events import AttemptId


def files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".lease").iterdir())


def silence(root: Path, seconds: float = SILENT_AFTER_S + 1) -> None:
    """Have the holder's last heartbeat lie so long ago, by the file system's clock."""
    (held,) = (root / ".lease").glob("*.json")
    then = held.stat().st_mtime - seconds
    os.utime(held, (then, then))


def test_the_first_one_takes_it_and_keeps_it(tmp_path: Path, holder: Any) -> None:
    mine = Lease(tmp_path / "new", holder(1))
    assert mine.hold() is None
    assert files(tmp_path / "new") == ["00000001.json"]
    silence(tmp_path / "new")
    old = (tmp_path / "new/.lease/00000001.json").stat().st_mtime
    assert mine.hold() is None
    assert files(tmp_path / "new") == ["00000001.json"]
    assert (tmp_path / "new/.lease/00000001.json").stat().st_mtime > old + SILENT_AFTER_S


def test_a_later_attempt_takes_over_at_once_and_the_older_one_finds_out(
    tmp_path: Path, holder: Any
) -> None:
    old, new = Lease(tmp_path, holder(1)), Lease(tmp_path, holder(2))
    assert old.hold() is None
    assert new.hold() is None
    assert files(tmp_path) == ["00000002.json"]
    for _ in range(2):
        lost = old.hold()
        assert lost is not None
        assert lost.superseded
        assert "attempt 1.0.0 of job dag.mine" in lost.reason
        assert "taken over by attempt 2.0.0 of job dag.mine" in lost.reason
        assert new.hold() is None
    late = Lease(tmp_path, holder(1, 5)).hold()
    assert late is not None
    assert late.superseded
    assert files(tmp_path) == ["00000002.json"]


def test_of_two_processes_of_one_attempt_the_later_goes_on(tmp_path: Path, holder: Any) -> None:
    one, two = Lease(tmp_path, holder(1)), Lease(tmp_path, holder(1))
    assert one.hold() is None
    assert two.hold() is None
    lost = one.hold()
    assert lost is not None
    assert lost.superseded
    assert two.hold() is None


def test_a_replaced_trainer_stays_so_whatever_becomes_of_the_files(
    tmp_path: Path, holder: Any
) -> None:
    old = Lease(tmp_path, holder(1))
    old.hold()
    Lease(tmp_path, holder(2)).hold()
    assert old.hold() is not None
    shutil.rmtree(tmp_path / ".lease")
    assert old.hold() is not None


def test_another_jobs_lease_refuses_and_says_whose_it_is_and_what_to_do(
    tmp_path: Path, trainer: Any, holder: Any
) -> None:
    process = trainer(tmp_path, "say(lease.hold()); sys.stdin.read()", 3, job="other")
    assert process.stdout.readline() == "None\n"
    mine = Lease(tmp_path, holder(9))
    refusal = mine.hold()
    assert refusal is not None
    assert not refusal.superseded
    for told in (
        str(tmp_path), "attempt 3.0.0 of job dag.other", f"process {process.pid} on elsewhere",
        "since yesterday", "last sign of life 0 s ago", "give job dag.mine another checkpoint_uri",
        f"stop that training and remove {tmp_path}/.lease/00000001.json",
    ):  # fmt: skip
        assert told in refusal.reason
    process.kill()
    process.wait()
    silence(tmp_path)
    refusal = mine.hold()
    assert refusal is not None
    assert f"last sign of life {SILENT_AFTER_S + 1:.0f} s ago" in refusal.reason
    assert f"if that training is over, remove {tmp_path}/.lease/00000001.json" in refusal.reason
    (tmp_path / ".lease/00000001.json").unlink()  # as advised
    assert mine.hold() is None


def test_a_holder_killed_at_any_moment_is_taken_over_at_once(
    tmp_path: Path, trainer: Any, holder: Any
) -> None:
    """Whatever files it left in the middle of taking the lease, the next one is not kept off."""
    for number in range(1, 13):
        # All of them are of the same launch, so that the victim takes over, too.
        code = "say('up')\nwhile True: Lease(root, lease._holder).hold()"
        process = trainer(tmp_path, code)
        assert process.stdout.readline() == "up\n"
        time.sleep(0.002 * number)
        process.kill()
        process.wait()
        assert Lease(tmp_path, holder(1)).hold() is None
        numbers = [name for name in files(tmp_path) if name.endswith(".json")]
        assert len(numbers) == 1


def test_a_takers_death_before_it_removed_the_former_lease_replaces_the_holder_all_the_same(
    tmp_path: Path, holder: Any
) -> None:
    old = Lease(tmp_path, holder(1))
    old.hold()
    (tmp_path / ".lease/00000002.json").write_bytes(holder(2).encode())
    lost = old.hold()
    assert lost is not None
    assert lost.superseded
    assert Lease(tmp_path, holder(3)).hold() is None
    assert files(tmp_path) == ["00000003.json"]


@pytest.mark.parametrize("submissions", [[1, 2, 3, 4], [1, 1, 1, 1]], ids=["launches", "one"])
def test_of_processes_that_contend_one_is_left(
    tmp_path: Path, trainer: Any, submissions: list[int]
) -> None:
    code = """
say("ready")
sys.stdin.readline()
end, refusal = time.monotonic() + 0.5, None
while refusal is None and time.monotonic() < end:
    refusal = lease.hold()
say(refusal and refusal.superseded)
sys.stdin.readline()
say(lease.hold() and "lost")
"""
    processes = [trainer(tmp_path, code, number) for number in submissions]
    for _ in ("ready", "contended"):
        for process in processes:
            assert process.stdout.readline()
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
    answers = [process.stdout.readline().strip() for process in processes]
    winners = [n for n, answer in zip(submissions, answers, strict=True) if answer == "None"]
    assert winners == [max(submissions)]
    assert sorted(set(answers)) == ["None", "lost"]


COMMITS = """
for cursor in range(1, 100_000):
    path = root / checkpoints.folder_name(cursor * 10 + attempt.submission, attempt)
    path.mkdir(parents=True)
    (path / "weights").write_bytes(b"w" * 1000)
    def check():
        refusal = lease.hold()
        if refusal:
            say("lost", path.name)
            sys.exit(0 if refusal.superseded else 3)
    checkpoints.commit(path, job=job, attempt=attempt, epoch=1, cursor=cursor, check=check)
    checkpoints.retain(root, keep=2, attempt=attempt)
    say(path.name)
"""


def test_an_older_attempt_that_lives_on_commits_nothing_more_and_removes_nothing_of_the_newer(
    tmp_path: Path, trainer: Any, holder: Any
) -> None:
    old = trainer(tmp_path, COMMITS, 1)
    for _ in range(5):
        assert old.stdout.readline().startswith("c")
    assert Lease(tmp_path, holder(2)).hold() is None
    newer = tmp_path / checkpoints.folder_name(1, AttemptId(2))
    newer.mkdir()
    (newer / "weights").write_bytes(b"n")
    checkpoints.commit(newer, job="mine", attempt=AttemptId(2), epoch=2, cursor=1)
    *_, last = old.communicate(timeout=30)[0].splitlines()
    assert old.returncode == 0
    refused = tmp_path / last.removeprefix("lost ")
    assert last.startswith("lost ")
    assert not (refused / "COMMITTED").exists()
    checkpoints.verify(checkpoints.open_checkpoint(str(newer)))
    # Its next life begins with the newer attempt's choice: nothing it reads is removed.
    before = sorted(tmp_path.rglob("*"))
    assert checkpoints.newest_verified(str(tmp_path)) is not None
    assert sorted(tmp_path.rglob("*")) == before


def test_an_older_attempts_retention_spares_a_newer_ones_even_under_a_clock_that_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(cursor: int, attempt: AttemptId, created_ns: int) -> Path:
        monkeypatch.setattr(time, "time_ns", lambda: created_ns)
        path = tmp_path / checkpoints.folder_name(cursor, attempt)
        path.mkdir()
        return checkpoints.commit(path, job="mine", attempt=attempt, epoch=1, cursor=cursor).path

    olds = [save(cursor, AttemptId(1), 9000 + cursor) for cursor in (30, 40, 50)]
    news = [save(cursor, AttemptId(2), cursor) for cursor in (10, 20, 25)]
    checkpoints.retain(tmp_path, keep=2, attempt=AttemptId(1))
    assert [path.exists() for path in olds + news] == [False, False, False, True, True, True]
    checkpoints.retain(tmp_path, keep=2, attempt=AttemptId(2))
    assert [path.exists() for path in news] == [False, True, True]


@pytest.mark.parametrize("days", [-400, 400])
def test_no_hosts_clock_has_a_say(
    tmp_path: Path, holder: Any, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    assert Lease(tmp_path, holder(1, job="other")).hold() is None
    now = time.time() + days * 86400
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "time_ns", lambda: int(now * 1e9))
    refusal = Lease(tmp_path, holder(2)).hold()
    assert refusal is not None
    assert "last sign of life 0 s ago" in refusal.reason
    silence(tmp_path, -days * 86400)  # beats stamped by a client's clock that is far off
    assert Lease(tmp_path, holder(2)).hold() is not None


@pytest.mark.parametrize("content", [b"", b'{"v": 1, "job": "oth', b"\0" * 300])
def test_a_half_written_lease_is_respected_while_it_beats_and_replaced_when_silent(
    tmp_path: Path, holder: Any, content: bytes
) -> None:
    (tmp_path / ".lease").mkdir()
    (tmp_path / ".lease/00000004.json").write_bytes(content)
    mine = Lease(tmp_path, holder(1))
    refusal = mine.hold()
    assert refusal is not None
    assert not refusal.superseded
    assert "somebody whose lease cannot be read" in refusal.reason
    silence(tmp_path)
    assert mine.hold() is None
    assert files(tmp_path) == ["00000005.json"]


def test_a_client_that_still_sees_the_old_folder_finds_out_from_its_own_file(
    tmp_path: Path, holder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS clients cache a folder's names for up to a minute, but touch a file at the server."""
    old = Lease(tmp_path, holder(1))
    old.hold()
    Lease(tmp_path, holder(2)).hold()
    monkeypatch.setattr(old._files, "numbers", lambda: [1])
    lost = old.hold()
    assert lost is not None
    assert lost.superseded
    assert "attempt 2.0.0" in lost.reason


@pytest.mark.parametrize("submission", [2, 4, 5])
def test_one_that_slept_while_others_took_the_lease_gets_it_by_the_rules_alone(
    tmp_path: Path, holder: Any, monkeypatch: pytest.MonkeyPatch, submission: int
) -> None:
    """It looked when lease 1 held and wakes when 2 was taken, then removed for 3."""
    Lease(tmp_path, holder(1)).hold()
    link, newest = leasefiles.link, Lease(tmp_path, holder(4))
    late = Lease(tmp_path, holder(submission))

    def slow(draft: Path, path: Path) -> bool:
        monkeypatch.setattr(leasefiles, "link", link)
        assert Lease(tmp_path, holder(3)).hold() is None
        assert newest.hold() is None
        return link(draft, path)

    monkeypatch.setattr(leasefiles, "link", slow)
    lost = late.hold()
    winner, loser = (late, newest) if submission > 4 else (newest, late)
    assert (lost is None) == (winner is late)
    assert winner.hold() is None
    lost = loser.hold()
    assert lost is not None
    assert lost.superseded


def test_a_lease_removed_by_hand_is_taken_anew(tmp_path: Path, holder: Any) -> None:
    mine = Lease(tmp_path, holder(1))
    mine.hold()
    shutil.rmtree(tmp_path / ".lease")
    assert mine.hold() is None
    assert files(tmp_path) == ["00000002.json"]


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can reach, and none but its owner write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_directory_that_cannot_be_written_is_an_oserror_and_no_lease(
    public: Path, trainer: Any
) -> None:
    code = """
if os.geteuid() == 0: os.setuid(65534)
else: root.chmod(0o555)
try: say(lease.hold())
except OSError as error: say(type(error).__name__)
"""
    assert trainer(public, code).communicate(timeout=30)[0] == "PermissionError\n"
    assert list(public.iterdir()) == []


def test_a_lease_is_no_checkpoint_and_nobody_is_warned_of_it(
    tmp_path: Path, holder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Lease(tmp_path, holder(1)).hold()
    assert checkpoints.newest_committed(str(tmp_path)) is None
    checkpoints.retain(tmp_path, keep=1, attempt=AttemptId(2))
    assert files(tmp_path) == ["00000001.json"]
    assert caplog.messages == []


def test_a_stopped_holder_that_wakes_up_finds_out(
    tmp_path: Path, trainer: Any, holder: Any
) -> None:
    code = "say(lease.hold()); sys.stdin.readline(); say(lease.hold().superseded)"
    process = trainer(tmp_path, code)
    assert process.stdout.readline() == "None\n"
    process.send_signal(signal.SIGSTOP)
    assert Lease(tmp_path, holder(2)).hold() is None
    process.send_signal(signal.SIGCONT)
    assert process.communicate("\n", timeout=30)[0] == "True\n"
