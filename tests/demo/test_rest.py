"""The REST client against answers as Airflow gives them."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from airflow_ett.demo import rest
from airflow_ett.demo.rest import Api, wait_until
from airflow_ett.errors import DemoError


class Airflow(BaseHTTPRequestHandler):
    """Answers with the next of ``answers``; notes what it was asked."""

    answers: ClassVar[list[tuple[int, object]]] = []
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
        token = self.path == "/auth/token"
        status, body = (201, {"access_token": "t"}) if token else self.answers.pop(0)
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(rest, "_PAUSE_S", 0)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    Airflow.answers.clear()
    Airflow.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Airflow)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Api(f"http://127.0.0.1:{server.server_address[1]}", "admin", "secret")
    server.shutdown()
    server.server_close()
    thread.join()


def test_sqlites_passing_error_is_tried_again_with_the_token(api: Api) -> None:
    Airflow.answers += [(409, {"detail": "Database error"}), (500, {}), (200, {"state": "queued"})]
    assert api.run_state("d", "r") == "queued"
    assert Airflow.asked[0] == "POST /auth/token None"
    assert Airflow.asked[1:] == ["GET /api/v2/dags/d/dagRuns/r Bearer t"] * 3


def test_a_refusal_is_not_tried_again_and_quoted(api: Api) -> None:
    Airflow.answers += [(404, {"detail": "The Dag was not found"})]
    with pytest.raises(DemoError, match=r"404 .*The Dag was not found"):
        api.get("/dags/nope")
    assert len(Airflow.asked) == 2


def test_waiting_ends_with_the_name_of_what_did_not_come() -> None:
    with pytest.raises(DemoError, match="in vain until the sun rises"):
        wait_until(lambda: None, "the sun rises", 0.01, 0.001)
