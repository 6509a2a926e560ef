"""What trainers and agents write of an error holds no secret of theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Kind
from airflow_ett.trainer.failure import told
from airflow_ett.trainer.masking import masked


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "WANDB_API_KEY", "apikey"),
        *("PGPASSWORD", "db_passwd", "MYSQL_PWD", "SSH_PRIVATE_KEY", "GCP_CREDENTIALS"),
    ],
)
def test_the_value_of_a_sensitive_name_is_masked(name: str) -> None:
    assert masked("401 for 's3cr3t!'", {name: "s3cr3t!"}) == "401 for '***'"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin"),
        ("TOKENIZERS_PARALLELISM", "disabled"),
        ("TOKENIZER", "/usr/bin"),
        ("HF_TOKEN", "short"),
        ("HF_TOKEN", ""),
        ("PWD", "/usr/bin"),
        ("OLDPWD", "/usr/bin"),
    ],
)
def test_what_is_no_secret_stays(name: str, value: str) -> None:
    assert masked(f"no file /usr/bin {value}", {name: value}) == f"no file /usr/bin {value}"


def test_a_secret_within_another_leaves_no_rest() -> None:
    environ = {"A_TOKEN": "abcdef", "B_TOKEN": "abcdefghi"}
    assert masked("abcdefghi and abcdef", environ) == "*** and ***"


def test_a_key_of_several_lines_is_masked_even_where_it_is_quoted() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQE\n-----END KEY-----\n"
    shown = masked(f"cannot read {key!r}", {"TLS_PRIVATE_KEY": key})
    assert "MIIEv" not in shown
    assert "kqhki" not in shown


def test_a_secret_at_the_cut_does_not_survive_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "abcdefgh")
    for before in range(3_990, 4_001):
        assert "abc" not in told("E", "x" * before + "abcdefgh", "")["message"]
    for after in range(7_990, 8_001):
        assert "fgh" not in told("E", "", "abcdefgh" + "x" * after)["traceback"]


def test_neither_log_nor_reply_holds_a_secret_of_the_session(job: Any) -> None:
    agent = job.agent(
        """
        import os
        from airflow_ett.trainer import Session
        with Session():
            raise PermissionError("no access with " + os.environ["HF_TOKEN"])
        """,
        HF_TOKEN="hf_topsecret",
    )
    agent.communicate(timeout=60)
    _check_written(job)


def test_nor_one_that_only_another_writer_put_into_the_error_file(job: Any) -> None:
    agent = job.agent(
        """
        import json, os, sys
        text = "PermissionError: no access with " + os.environ["HF_TOKEN"]
        extra = {"py_callstack": "x" * 100_000 + text}
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
            json.dump({"message": {"message": text, "extraInfo": extra}}, file)
        sys.exit(1)
        """,
        HF_TOKEN="hf_topsecret",
    )
    agent.communicate(timeout=60)
    _check_written(job)


def _check_written(job: Any) -> None:
    reply = job.run_dir.reply(AttemptId(1), 0).read_text()
    error = json.loads(reply)["ranks"][0]["error"]
    assert (error["type"], error["message"]) == ("PermissionError", "no access with ***")
    assert len(error["traceback"]) <= 8_000
    assert job.events(Kind.FAILURE)
    written = [reply, *(path.read_text() for path in job.run_dir.logs())]
    assert not any("topsecret" in text for text in written)
