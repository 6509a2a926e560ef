"""Tokens of the API: who can make one, what it is good for, and what no message tells."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools

import pytest

from airflow_ett.errors import ConfigurationError, TokenError
from airflow_ett.storage.tokens import Role, issue, read, secrets_of, verify

SECRET = "0" * 31 + "1"
OTHER = "another-secret-of-32-characters!"
JOB, OTHER_JOB = "0123456789abcdef0123", "f" * 20
NOW = 1_800_000_000.0


def token(**change: object) -> str:
    options: dict = {"secret": SECRET, "job_id": JOB, "role": "trainer", "expires_s": 100}
    return issue(**{**options, **change}, now_s=NOW)


def test_a_token_grants_what_it_was_issued_for() -> None:
    grant = verify(SECRET, token(), job_id=JOB, role="trainer", now_s=NOW + 99)
    assert grant == (JOB, Role.TRAINER, 1_800_000_000, 1_800_000_100)
    assert grant.life_s == 100
    assert read(token()) == grant


def test_it_is_the_hmac_of_what_it_says() -> None:
    """By hand, so that the format can't change unnoticed: tokens are out in trainers."""
    said, _, mac = token().rpartition(".")
    assert said == f"ett1.{JOB}.trainer.1800000000.1800000100"
    digest = hmac.new(SECRET.encode(), said.encode(), hashlib.sha256).digest()
    assert mac == base64.urlsafe_b64encode(digest).decode().rstrip("=")


def test_nothing_in_it_can_be_changed() -> None:
    good = token()
    for at, letter in itertools.product(range(len(good)), "0a.L"):
        changed = good[:at] + letter + good[at + 1 :]
        # The last letter of base64 holds two bits that mean nothing; they are compared, too.
        if changed != good:
            with pytest.raises(TokenError, match="forged") as raised:
                verify(SECRET, changed, now_s=NOW)
            assert not raised.value.forbidden
    others = ["", ".", "ett1", good + "=", good + "\n", " " + good, good.upper(), "x" * 100_000]
    others += [good.replace("trainer", "launcher"), good.replace("ett1", "ett2"), "é" * 90]
    for other in others:
        with pytest.raises(TokenError, match="forged"):
            verify(SECRET, other, now_s=NOW)


def test_it_expires() -> None:
    assert verify(SECRET, token(), now_s=NOW + 99.9)
    with pytest.raises(TokenError, match=f"of job {JOB} has expired"):
        verify(SECRET, token(), now_s=NOW + 100)
    with pytest.raises(TokenError, match="has expired"):
        verify(SECRET, token(expires_s=-5), now_s=NOW + 1)


def test_it_is_for_one_job_and_one_role() -> None:
    with pytest.raises(TokenError, match=f"for job {JOB}, not for {OTHER_JOB}") as raised:
        verify(SECRET, token(), job_id=OTHER_JOB, now_s=NOW)
    assert raised.value.forbidden
    with pytest.raises(TokenError, match="is a trainer's; this needs a launcher's") as raised:
        verify(SECRET, token(), role="launcher", now_s=NOW)
    assert raised.value.forbidden


def test_a_secret_is_exchanged_without_a_gap() -> None:
    old, new = token(), token(secret=f"{OTHER}, {SECRET}")
    for good in (old, new):
        assert verify(f"{OTHER},{SECRET}", good, now_s=NOW)
    assert verify(OTHER, new, now_s=NOW)
    for secret, bad in ((OTHER, old), (SECRET, new)):
        with pytest.raises(TokenError, match="another secret"):
            verify(secret, bad, now_s=NOW)


@pytest.mark.parametrize("secret", ["", " , ", "x" * 31, f"{SECRET},short"])
def test_a_secret_that_could_be_guessed_is_refused(secret: str) -> None:
    for use in (lambda: token(secret=secret), lambda: verify(secret, token(), now_s=NOW)):
        with pytest.raises(ConfigurationError) as raised:
            use()
        assert raised.value.parameter == "[ett] api_secret"
        assert secret.strip(" ,") == "" or secret not in str(raised.value)
    assert secrets_of(f" {SECRET} ,") == [SECRET]


@pytest.mark.parametrize("job", ["", "job", JOB.upper(), JOB + "0", JOB[:19] + "\n", "a.b"])
def test_only_a_jobs_id_gets_one(job: str) -> None:
    with pytest.raises(ValueError, match="20 hexadecimal digits"):
        token(job_id=job)
    with pytest.raises(ValueError, match="is not a valid Role"):
        token(role="admin")


def test_no_message_tells_a_secret_or_a_token() -> None:
    said = []
    for use in (
        lambda: verify(OTHER, token(), now_s=NOW),
        lambda: verify(SECRET, token(), now_s=NOW + 1000),
        lambda: verify(SECRET, token(), job_id=OTHER_JOB, now_s=NOW),
        lambda: verify(SECRET, token(), role="launcher", now_s=NOW),
    ):
        with pytest.raises(TokenError) as raised:
            use()
        said.append(str(raised.value))
    mac = token().rpartition(".")[2]
    assert not [text for text in said if SECRET in text or OTHER in text or mac in text]


def test_half_of_its_life() -> None:
    grant = read(token())
    assert grant is not None
    assert [grant.is_old(NOW + s) for s in (0, 49, 50, 99)] == [False, False, True, True]
    assert read("no token") is None
