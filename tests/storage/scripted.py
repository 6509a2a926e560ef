"""A server that answers as it is told to, on loopback, for clients of the API."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_ett.storage.http import HttpStorage
from airflow_ett.storage.tokens import issue

JOB = "0123456789abcdef0123"
SECRET = "a-secret-of-32-characters-or-more"
OURS = {"ETT-API": "1"}


@dataclass
class Answer:
    """What the server answers: a status of 0 hangs up."""

    status: int
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=lambda: dict(OURS))


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Server:
    """Answers requests one by one as planned, and then always with the last answer."""

    def __init__(self) -> None:
        self.plan: list[Answer] = []
        self.asked: list[Asked] = []
        self.address = ""

    @property
    def place(self) -> str:
        """The job's place."""
        return f"{self.address}/ett/api/v1/logs/{JOB}"

    def next(self, asked: Asked) -> Answer:
        """Note a request and return its answer."""
        self.asked.append(asked)
        return self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]

    def storage(self, **options: Any) -> tuple[HttpStorage, list[float]]:
        """Return a client that notes its pauses instead of making them."""
        pauses: list[float] = []
        token = options.pop("token", issue(SECRET, JOB, "launcher", 3600))
        source = token if callable(token) else lambda: token
        return HttpStorage(self.place, source, sleep=pauses.append, **options), pauses


def _handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = server.next(Asked(self.command, self.path, dict(self.headers), body))
            if not answer.status:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in answer.headers:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = "Content-Length" in answer.headers

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def scripted(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Serve in a thread, with TLS where there is a context."""
    server = Server()
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    listening.daemon_threads = True
    if context is not None:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
    scheme = "https" if context else "http"
    server.address = f"{scheme}://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join(10)
