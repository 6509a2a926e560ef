"""The client of the API, against a server that answers as it is told to."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_ett.errors import ConfigurationError, EventLogError
from airflow_ett.events import Event
from airflow_ett.storage import open_storage
from airflow_ett.storage.access import MOST_FILE
from airflow_ett.storage.http import HttpStorage
from airflow_ett.storage.tokens import issue
from airflow_ett.storage.transport import Tokens
from tests.storage.scripted import JOB, OURS, SECRET, Answer, Server, scripted


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on loopback; no proxy of the environment stands before it."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with scripted() as served:
        yield served


CLOCK = Answer(200, b'{"now_ns": 7}')


def test_what_may_pass_is_tried_again(server: Server) -> None:
    """No answer, a torn one, too many requests, and whatever a proxy says meanwhile."""
    torn = Answer(200, b'{"now', {**OURS, "Content-Length": "99"})
    bad_gateway = Answer(502, b"<html>", {})
    busy = Answer(429, b'{"detail": "later"}', {**OURS, "Retry-After": "7"})
    server.plan = [Answer(0), torn, Answer(500), Answer(503), Answer(504), bad_gateway, busy, CLOCK]
    place, pauses = server.storage(patience_s=60)
    assert place.now_ns() == 7
    assert len(server.asked) == 8
    assert pauses[6] >= 7  # a pause of our own may be longer
    assert all(0.05 * 2**n <= pauses[n] <= 0.15 * 2**n for n in range(6))


def test_patience_ends(server: Server) -> None:
    server.plan = [Answer(503, b'{"detail": "the database is away"}')]
    place = HttpStorage(server.place, lambda: issue(SECRET, JOB, "launcher", 60), patience_s=0.3)
    with pytest.raises(OSError, match="cannot be used: status 503: the database is away") as raised:
        place.read("cursor")
    assert not isinstance(raised.value, PermissionError)
    assert len(server.asked) >= 2
    long = Answer(429, headers={**OURS, "Retry-After": "100000"})
    server.plan = [long]
    place, pauses = server.storage(patience_s=20)
    with pytest.raises(OSError, match="status 429"):
        place.now_ns()
    assert pauses == []


def test_nobody_answers() -> None:
    with scripted() as gone:
        pass
    place = HttpStorage(gone.place, lambda: issue(SECRET, JOB, "launcher", 60), patience_s=0.2)
    with pytest.raises(OSError, match="cannot be used: ConnectionError"):
        place.entries("nodes")


def test_a_server_that_is_silent_is_not_waited_for_long(server: Server) -> None:
    """It takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/logs/{JOB}"
        token = issue(SECRET, JOB, "launcher", 60)
        began = time.monotonic()
        with pytest.raises(OSError, match="ReadTimeout"):
            HttpStorage(place, lambda: token, patience_s=0.2).now_ns()
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_refused_is_not_tried_again(server: Server, status: int) -> None:
    server.plan = [Answer(status, b'{"detail": "of another job"}')]
    place, pauses = server.storage()
    with pytest.raises(PermissionError, match="of another job"):
        place.write("cursor", b"")
    assert (len(server.asked), pauses) == (1, [])


def test_a_request_that_is_refused_is_not_tried_again(server: Server) -> None:
    for status in (400, 413, 415, 422):
        server.plan = [Answer(status, b'{"detail": "no"}')]
        place, pauses = server.storage()
        with pytest.raises(OSError, match="takes no such request") as raised:
            place.write("cursor", b"")
        assert not isinstance(raised.value, PermissionError)
        assert pauses == []
    count = len(server.asked)
    with pytest.raises(OSError, match="File too large"):
        place.write("cursor", b"x" * (MOST_FILE + 1))
    assert len(server.asked) == count


@pytest.mark.parametrize("status", [200, 201, 204, 404, 412, 403])
def test_what_is_not_this_api_is_not_believed(server: Server, status: int) -> None:
    """Airflow answers 200 with a page for any address, and a proxy 404: neither means no file."""
    server.plan = [Answer(status, b"<html>", {})]
    place, _ = server.storage()
    for use in (
        lambda: place.read("cursor"),
        lambda: place.create("launcher/claims/00000001.json", b""),
        lambda: place.entries("launcher/claims"),
    ):
        with pytest.raises(OSError, match="not this API") as raised:
            use()
        assert not isinstance(raised.value, PermissionError)
        assert "[ett] api_url" in str(raised.value)


def test_a_token_goes_to_no_other_host(server: Server) -> None:
    with scripted() as other:
        for status in (301, 302, 307, 308):
            server.plan = [Answer(status, b"", {**OURS, "Location": other.place})]
            place, pauses = server.storage()
            with pytest.raises(OSError, match="such request"):
                place.read("cursor")
            server.plan = [Answer(status, b"", {"Location": other.place})]
            with pytest.raises(OSError, match=r"points to 127\.0\.0\.1"):
                place.read("cursor")
            assert pauses == []
        assert other.asked == []


def test_a_token_is_sent_and_nothing_else_in_its_place(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``requests`` would send what ~/.netrc says of the host."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login anna password hidden\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server.plan = [Answer(200, b'{"now_ns": 7}', {**OURS, "Set-Cookie": "a=b"})]
    token = issue(SECRET, JOB, "launcher", 3600)
    place, _ = server.storage(token=token)
    place.now_ns()
    place.now_ns()
    assert {one.headers["Authorization"] for one in server.asked} == {f"Bearer {token}"}
    assert not [one for one in server.asked if "Cookie" in one.headers]
    assert token not in place.place


def test_no_message_tells_the_token(server: Server) -> None:
    good = issue(SECRET, JOB, "launcher", 3600)
    for token in ("", "made-up", "two\r\nlines", "é", f"{good}\n"):
        place, _ = server.storage(token=token)
        with pytest.raises(PermissionError, match="ETT_TOKEN") as raised:
            place.now_ns()
        assert not token or token not in str(raised.value)
    assert server.asked == []
    with pytest.raises(PermissionError, match="there is no token"):
        open_storage(server.place).now_ns()


def test_proxies_are_those_of_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.plan = [CLOCK]
    monkeypatch.setenv("HTTP_PROXY", server.address)
    monkeypatch.setenv("NO_PROXY", "")
    place = f"http://airflow.invalid/ett/api/v1/logs/{JOB}"
    assert HttpStorage(place, lambda: issue(SECRET, JOB, "launcher", 60)).now_ns() == 7
    assert server.asked[0].path == "http://airflow.invalid/ett/api/v1/clock"


def test_certificates_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, for good; those of REQUESTS_CA_BUNDLE are trusted."""
    certificate, key = _certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with scripted(context) as server:
        server.plan = [CLOCK]
        place, pauses = server.storage()
        with pytest.raises(OSError, match=r"SSLError.*certificate verify failed"):
            place.now_ns()
        assert (server.asked, pauses) == ([], [])
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert place.now_ns() == 7


def _certificate(folder: Path) -> tuple[Path, Path]:
    x509 = pytest.importorskip("cryptography.x509")
    import datetime
    import ipaddress

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(host, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return files


def test_a_token_is_renewed_once_half_of_its_life_is_over(server: Server) -> None:
    old = issue(SECRET, JOB, "trainer", 1000, now_s=time.time() - 600)
    new = issue(SECRET, JOB, "trainer", 1000)
    server.plan = [Answer(200, json.dumps({"token": new}).encode()), CLOCK]
    place, _ = server.storage(token=old)
    for _ in range(3):
        place.now_ns()
    assert [one.path.rpartition("/")[2] for one in server.asked] == ["renew", *["clock"] * 3]
    sent = [one.headers["Authorization"] for one in server.asked]
    assert sent == [f"Bearer {old}", *[f"Bearer {new}"] * 3]


@pytest.mark.parametrize("answer", [Answer(0), Answer(503), Answer(200, b"<"), Answer(403)])
def test_a_renewal_that_fails_is_no_harm_while_the_old_one_is_good(
    server: Server, answer: Answer
) -> None:
    old = issue(SECRET, JOB, "trainer", 1000, now_s=time.time() - 600)
    server.plan = [answer, CLOCK]
    place, _ = server.storage(token=old)
    for _ in range(3):
        assert place.now_ns() == 7
    assert [one.path.rpartition("/")[2] for one in server.asked] == ["renew", *["clock"] * 3]


def test_one_thread_renews_while_others_go_on(server: Server) -> None:
    old = issue(SECRET, JOB, "trainer", 1000, now_s=time.time() - 600)
    new = issue(SECRET, JOB, "trainer", 1000)
    server.plan = [Answer(200, json.dumps({"token": new, "now_ns": 7}).encode())]
    place, _ = server.storage(token=old)
    threads = [threading.Thread(target=place.now_ns) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [one.path.rpartition("/")[2] for one in server.asked].count("renew") == 1
    assert len(server.asked) == 17


def test_a_token_that_is_told_anew_is_taken(server: Server) -> None:
    """A launcher makes one whenever it is asked; a renewed one that is refused makes way for it."""
    told = [issue(SECRET, JOB, "launcher", 1000, now_s=time.time() - n) for n in (5, 4)]
    server.plan = [CLOCK]
    left = list(told)
    place, _ = server.storage(token=lambda: left.pop(0))
    place.now_ns()
    place.now_ns()
    assert [one.headers["Authorization"] for one in server.asked] == [f"Bearer {t}" for t in told]
    old = issue(SECRET, JOB, "trainer", 1000, now_s=time.time() - 600)
    new = issue("another-secret-of-32-characters!!", JOB, "trainer", 1000)
    renewed = Answer(200, json.dumps({"token": new}).encode())
    server.plan = [renewed, Answer(401, b'{"detail": "forged"}'), CLOCK]
    place, _ = server.storage(token=old)
    assert place.now_ns() == 7
    assert server.asked[-1].headers["Authorization"] == f"Bearer {old}"


def test_a_token_that_was_renewed_meanwhile_takes_the_place_of_a_refused_one() -> None:
    """An answer to the old one may come after the renewal by another thread."""
    old = issue(SECRET, JOB, "trainer", 1000, now_s=time.time() - 600)
    new = issue(SECRET, JOB, "trainer", 1000)
    tokens = Tokens(lambda: old, lambda _: new)
    assert tokens.current() == new
    assert tokens.instead_of(old) == new
    assert tokens.current() == new
    assert tokens.instead_of(new) == old
    assert tokens.current() == old
    assert tokens.instead_of(old) is None


def _events(count: int, text: str = "") -> list[Event]:
    return [Event(JOB, "w", seq, 10**18, "note", data={"text": text}) for seq in range(count)]


def test_many_events_are_sent_in_portions(server: Server) -> None:
    server.plan = [Answer(200, b'{"rejected": []}')]
    place, _ = server.storage()
    place.append("nodes/w.jsonl", _events(12_000))
    place.append("nodes/w.jsonl", _events(3, "x" * 700_000))
    place.append("nodes/w.jsonl", [])
    lines = [gzip.decompress(one.body).count(b"\n") for one in server.asked]
    assert lines == [5000, 5000, 2000, 1, 1, 1]
    assert {one.path for one in server.asked} == {"/ett/api/v1/events"}


def test_rejected_events_are_told_after_all_others_were_sent(server: Server) -> None:
    bad = {"rejected": [{"line": 2, "problem": "it is odd"}]}
    server.plan = [Answer(200, json.dumps(bad).encode())]
    place, _ = server.storage()
    with pytest.raises(EventLogError, match="event 1 of w: it is odd; event 5001 of w: it is odd"):
        place.append("nodes/w.jsonl", _events(12_000))
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "place",
    [
        *("ftp://a/logs/" + JOB, "https://a/logs/job", f"https://a/logs/{JOB}/files", "https://a"),
        *(f"https://anna:hidden@a/logs/{JOB}", f"https://a/logs/{JOB}?x=1", f"https:///logs/{JOB}"),
        f"https://a/x/../logs/{JOB}\n",
    ],
)
def test_only_a_jobs_address_is_a_place(place: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        HttpStorage(place)
    assert raised.value.parameter == "[ett] api_url"
    assert "hidden" not in str(raised.value)


def test_requests_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(ConfigurationError, match=r"install `airflow-ett\[http\]`"):
        open_storage(f"https://a/logs/{JOB}")
