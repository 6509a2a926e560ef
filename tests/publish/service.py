"""A registry service, as docs/publishing.md tells its protocol, on loopback; it can fail as told.

It keeps its files in a folder and checks their digests as they come in.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flask import Flask, Response, jsonify, request, send_file
from werkzeug.serving import make_server

_CHUNK = 2**20


@dataclass
class Fault:
    """What happens to a request instead of its answer, ``times`` times.

    ``cut`` hangs up before the request is read, ``lost`` after it was done; ``hang`` answers when
    the service ends. ``act`` is called before.
    """

    status: int = 0
    body: str = '{"detail": "out of order"}'
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "answer"
    times: int = 1
    act: Callable[[], object] | None = None


class Service:
    """The models, what was asked for, and the faults to come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.versions: dict[tuple[str, str], bytes] = {}
        self.latest: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.authorizations: set[str | None] = set()
        self.ended = threading.Event()
        self._keys: dict[tuple[str, str], str] = {}
        self._faults: dict[tuple[str, str], Fault] = {}
        self._lock = threading.Lock()

    def fail(self, method: str, path: str, fault: Fault) -> None:
        """Let a fault happen to requests of this method whose paths begin so."""
        self._faults[method, path] = fault

    def count(self, method: str, path: str = "/") -> int:
        """Return how often there was such a request."""
        return sum(asked[0] == method and asked[1].startswith(path) for asked in self.asked)

    def fault(self) -> Fault | None:
        """Return what is to happen to the present request."""
        with self._lock:
            self.asked.append((request.method, request.path))
            self.authorizations.add(request.headers.get("Authorization"))
            for (method, path), fault in self._faults.items():
                if method == request.method and request.path.startswith(path) and fault.times:
                    fault.times -= 1
                    return fault
        return None

    def put(self, digest: str) -> Any:
        """Take a file in, piece by piece."""
        hashed, target = hashlib.sha256(), self.folder / f"{digest}.{threading.get_ident()}"
        with target.open("wb") as file:
            while piece := request.stream.read(_CHUNK):
                hashed.update(piece)
                file.write(piece)
        if hashed.hexdigest() != digest:
            target.unlink()
            return jsonify(detail=f"the content's SHA-256 is {hashed.hexdigest()}"), 422
        target.replace(self.folder / digest)
        return jsonify(digest=digest), 201

    def register(self, name: str) -> Any:
        """Make a version, once."""
        manifest, key = request.get_data(), request.headers["Idempotency-Key"]
        told = json.loads(manifest)
        missing = [f for f in told["files"].values() if not (self.folder / f["sha256"]).exists()]
        if missing:
            return jsonify(detail=f"not uploaded: {missing}"), 422
        with self._lock:
            place = name, told["version"]
            if self._keys.setdefault(place, key) != key:
                return jsonify(detail="another manifest is registered"), 409
            self.versions[place] = manifest
        return jsonify(version=told["version"]), 201

    def point(self, name: str) -> Any:
        """Move ``latest`` unless it names what is newer."""
        wanted = request.get_json()
        with self._lock:
            now = self.latest.get(name)
            if now is None or wanted["force"] or self._age(name, now) <= _age(wanted):
                self.latest[name] = wanted["version"]
            return jsonify(version=self.latest[name])

    def _age(self, name: str, version: str) -> tuple[int, int]:
        return _age(json.loads(self.versions[name, version])["source"])


def _age(told: dict[str, Any]) -> tuple[int, int]:
    return told["saved_ns"], told["cursor"]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Service]:
    """Serve an empty registry for a while."""
    folder.mkdir(parents=True, exist_ok=True)
    service = Service(folder)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, _app(service), threaded=True)
    service.url = f"http://127.0.0.1:{server.server_port}/registry"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        service.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _app(service: Service) -> Any:
    app = Flask(__name__)

    def version(name: str, version: str) -> Any:
        manifest = service.versions.get((name, version))
        if manifest is None:
            return jsonify(detail="there is no such version"), 404
        return Response(manifest, mimetype="application/json")

    def blob(digest: str) -> Any:
        path = service.folder / digest
        return send_file(path) if path.exists() else (jsonify(detail="there is no such file"), 404)

    def failing(view: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(**arguments: str) -> Any:
            fault = service.fault()
            if fault is None:
                return view(**arguments)
            if fault.act is not None:
                fault.act()
            if fault.kind == "lost":
                view(**arguments)
            if fault.kind == "hang":
                service.ended.wait()
            if fault.kind != "answer":
                request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return Response(fault.body, fault.status or 500, fault.headers)

        return wrapped

    for method, path, view in (
        ("GET", "/blobs/sha256/<digest>", blob),
        ("PUT", "/blobs/sha256/<digest>", service.put),
        ("POST", "/models/<name>/versions", service.register),
        ("GET", "/models/<name>/versions/<version>", version),
        ("POST", "/models/<name>/latest", service.point),
    ):
        app.add_url_rule(f"/registry{path}", f"{method}{path}", failing(view), methods=[method])
    return app
