"""No secret of Airflow's gets into a job log's evidence, whoever writes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from airflow.sdk._shared.secrets_masker import reset_secrets_masker
from airflow.sdk.log import mask_secret

from airflow_ett.events import AttemptId, JobKey, Kind, Layer, RunDir
from airflow_ett.hooks.masking import redact, redactor
from airflow_ett.launch.aftermath import conclude, examine
from airflow_ett.launch.history import Submission
from airflow_ett.launch.ledger import Ledger
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.root import Root
from airflow_ett.launch.status import ReplicaStatus, SchedulerStatus
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import FolderStorage
from airflow_ett.storage.tokens import Role, issue

KEY = JobKey("default", "dag", "run", "train")
ENV = {"HF_TOKEN": "hunter2hunter2", "MODE": "eager-mode", "EMPTY_TOKEN": ""}
WORDS = "ValueError: 401 for hunter2hunter2 in eager-mode"


@pytest.fixture(autouse=True)
def _fresh_masker() -> Iterator[None]:
    yield
    reset_secrets_masker()


def test_what_airflow_masks_and_what_the_trainer_was_given_is_secret() -> None:
    mask_secret("a-connection's-password")
    redact = redactor(ENV)
    assert redact(WORDS) == "ValueError: 401 for *** in eager-mode"
    assert redact("a-connection's-password") == "***"
    evidence = {"text": WORDS, "exit_code": 1, "error": {"lines": [WORDS]}, "signal": None}
    masked = "ValueError: 401 for *** in eager-mode"
    assert redact(evidence) == {**evidence, "text": masked, "error": {"lines": [masked]}}


def test_a_token_for_the_api_is_secret_whoever_made_it() -> None:
    token = issue("s" * 32, KEY.id, Role.TRAINER, 60)
    assert redact(f"401 for Bearer {token}, try again") == "401 for Bearer ***, try again"
    assert redact({"lines": [f"ETT_TOKEN={token}"], "n": 1}) == {"lines": ["ETT_TOKEN=***"], "n": 1}


def test_evidence_is_masked_before_it_is_stored(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "job")
    log = StorageLog(FolderStorage(run_dir.path), KEY, redact=redactor(ENV))
    log.claim(try_number=1, max_tries=1, mode="task")
    written = log.append(
        Kind.ATTEMPT_ENDED,
        {"cause": "application", "evidence": {"source": "agent", "text": WORDS, "exit_code": 1}},
        attempt=AttemptId(1),
    )
    (end,) = (e for e in log.launcher_events() if e.kind == Kind.ATTEMPT_ENDED)
    assert end == written
    assert end.data["evidence"] == {
        "source": "agent",
        "text": "ValueError: 401 for *** in eager-mode",
        "exit_code": 1,
    }
    files = [path for path in run_dir.path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"hunter2" in path.read_bytes()]


def test_what_must_be_found_again_is_stored_as_it_is(tmp_path: Path) -> None:
    """An app's name with ``***`` in it would be another app's."""
    log = StorageLog(
        FolderStorage(tmp_path / "job"),
        KEY,
        redact=redactor({"A_SECRET": "ett-dag-train"}),
    )
    claim = log.claim(try_number=1, max_tries=1, mode="task")
    log.intend(claim, 1, {"app": "ett-dag-train-1"})
    assert log.intents()[1]["app"] == "ett-dag-train-1"
    (intent,) = (e for e in log.launcher_events() if e.kind == Kind.SUBMIT_INTENDED)
    assert intent.data["app"] == "ett-dag-train-1"


def test_no_secret_is_in_the_trainers_last_words(tmp_path: Path) -> None:
    """The scheduler's log has it; what is raised, and stored by Airflow or by us, has not."""

    class Gateway:
        def log_location(self, handle: str, replica: int) -> str:
            return "/logs/trainer-0"

        def last_lines(self, handle: str, replica: int, count: int) -> list[str]:
            return ["Traceback", WORDS]

    job = open_job(Root(str(tmp_path)), KEY, checkpoint_root="", try_number=1, max_tries=1)
    log = StorageLog(FolderStorage(tmp_path / KEY.path), KEY, redact=redactor(ENV))
    ledger = Ledger(log, log.claim(try_number=1, max_tries=1, mode="task"))
    asked = Submission(1, "app", "digest", Layer.FIRST, 1, 0)
    ledger.handed_over(ledger.intended(asked), "x://s/app")
    (submission,) = ledger.history.submissions
    failed = ReplicaStatus("trainer", 0, "FAILED", 1)
    status = SchedulerStatus("FAILED", "failed", replicas=(failed,))
    end = examine(log, submission, status, Gateway())
    ledger.attempt_ended(submission, end.verdict, end.attempt, end.cursor)
    outcome = conclude(replace(job, log=log), ledger.history, submission)
    assert "401 for ***" in outcome.message
    written = [path.read_text() for path in RunDir(Path(log.place)).logs()]
    assert not any("hunter2" in text for text in (outcome.message, *written))
