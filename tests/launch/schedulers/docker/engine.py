"""A Docker Engine that runs nothing: its API on loopback, and containers that do as a test says.

It answers as the Engine's documentation has it (version 1.47): the same statuses, names of fields
and forms of output. What it is asked to create must be what the documentation takes.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import jsonschema

_NEVER = "0001-01-01T00:00:00Z"
_NAME = re.compile(r"/?[a-zA-Z0-9][a-zA-Z0-9_.-]+")

_TEXT = {"type": ["string", "null"]}
_TEXTS = {"type": ["array", "null"], "items": {"type": "string"}}
_FLAG = {"type": ["boolean", "null"]}
_TABLE = {"type": ["object", "null"]}
_BYTES = {"type": "integer", "minimum": 0}

_MOUNT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["Target", "Type"],
    "properties": {
        "Target": {"type": "string", "pattern": "^/"},
        "Source": {"type": "string"},
        "Type": {"enum": ["bind", "volume", "tmpfs"]},
        "ReadOnly": _FLAG,
    },
}
_HOST_CONFIG = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "NetworkMode": _TEXT,
        "Privileged": _FLAG,
        "Memory": {"anyOf": [{"const": 0}, {"type": "integer", "minimum": 6 * 2**20}]},
        "ShmSize": _BYTES,
        "NanoCpus": _BYTES,
        "Mounts": {"type": "array", "items": _MOUNT},
        "Devices": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "PathOnHost": {"type": "string"},
                    "PathInContainer": {"type": "string"},
                    "CgroupPermissions": {"type": "string", "pattern": "^[rwm]+$"},
                },
            },
        },
        "DeviceRequests": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "Driver": {"type": "string"},
                    "Count": {"type": "integer"},
                    "DeviceIDs": _TEXTS,
                    "Capabilities": {"type": "array", "items": {"type": "array"}},
                    "Options": {"type": "object"},
                },
            },
        },
    },
}
CREATE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["Image"],
    "properties": {
        **dict.fromkeys(("Domainname", "User", "WorkingDir", "StopSignal", "Runtime"), _TEXT),
        **dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr", "OpenStdin"), _FLAG),
        **dict.fromkeys(("StdinOnce", "Tty", "NetworkDisabled"), _FLAG),
        **dict.fromkeys(("Entrypoint", "Cmd"), _TEXTS),
        **dict.fromkeys(("Volumes", "ExposedPorts", "Healthcheck"), _TABLE),
        "MacAddress": _TEXT,
        "Hostname": {"type": "string", "maxLength": 63},
        "Image": {"type": "string"},
        "Env": {"type": "array", "items": {"type": "string", "pattern": "^[^=]+(=|$)"}},
        "Labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "StopTimeout": {"type": ["integer", "null"], "minimum": 0},
        "HostConfig": _HOST_CONFIG,
        "NetworkingConfig": {
            "type": ["object", "null"],
            "properties": {
                "EndpointsConfig": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {"Aliases": _TEXTS},
                        "additionalProperties": False,
                    },
                }
            },
        },
    },
}
"""What ``POST /containers/create`` takes, as far as anybody here asks for it."""


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Container:
    """One container; what it prints is kept by line, as the Engine's own log does."""

    id: str
    name: str
    body: Mapping[str, Any]
    created: str
    status: str = "created"
    exit_code: int = 0
    oom_killed: bool = False
    error: str = ""
    started: str = _NEVER
    finished: str = _NEVER
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    unended: bytes = b""

    def say(self, text: bytes) -> None:
        *whole, self.unended = (self.unended + text).split(b"\n")
        for line in whole:
            self._keep(line + b"\n")

    def end(self, code: int, *, oom_killed: bool = False) -> None:
        """Exit; what stands without an end of line is kept only now."""
        if self.unended:
            self._keep(self.unended)
        self.status, self.exit_code, self.oom_killed = "exited", code, oom_killed
        self.finished = now()

    def inspected(self) -> dict[str, Any]:
        return {
            "Id": self.id,
            "Created": self.created,
            "Name": f"/{self.name}",
            "RestartCount": 0,
            "State": {
                "Status": self.status,
                "Running": self.status == "running",
                "Paused": self.status == "paused",
                "Restarting": False,
                "OOMKilled": self.oom_killed,
                "Dead": False,
                "Pid": 4711 if self.status == "running" else 0,
                "ExitCode": self.exit_code,
                "Error": self.error,
                "StartedAt": self.started,
                "FinishedAt": self.finished,
            },
            "Config": {
                "Hostname": self.body.get("Hostname"),
                "Tty": False,
                "Image": self.body["Image"],
                "Labels": self.body.get("Labels") or {},
            },
            "HostConfig": self.body.get("HostConfig") or {},
        }

    def _keep(self, line: bytes) -> None:
        last = self.lines[-1][0] if self.lines else 0
        self.lines.append((max(time.time_ns(), last + 1), line))


def now() -> str:
    return stamp(time.time_ns())


def stamp(ns: int) -> str:
    """Return a time as the Engine writes it."""
    seconds = datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{seconds}.{ns % 10**9:09d}Z"


class Engine:
    """``images`` can be pulled, ``local`` ones are there. ``holds``: a start lets it wait.

    ``deaf`` containers heed no SIGTERM. ``refuses_start`` is what each start is refused with.
    ``pulling`` is called while an image is fetched. ``requests`` has method and path of all that it
    was asked.
    """

    def __init__(self) -> None:
        self.images = {"ghcr.io/acme/train:1", "ghcr.io/pytorch/torchx:2026.10.26"}
        self.local: set[str] = set()
        self.networks: set[str] = set()
        self.containers: dict[str, Container] = {}
        self.holds = False
        self.deaf = False
        self.refuses_start = ""
        self.pulling: Callable[[], None] = lambda: None
        self.requests: list[tuple[str, str]] = []
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    def of(self, app: str) -> list[Container]:
        """Return an app's containers, in the order in which they were made."""
        label = "torchx.pytorch.org/app-id"
        return [c for c in self.containers.values() if c.body["Labels"][label] == app]

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        """Return status and content: JSON, bytes, or nothing. Raises :class:`Refusal`."""
        with self._lock:
            self.requests.append((method, path))
        for want, pattern, act in _ROUTES:
            found = re.fullmatch(pattern, path)
            if found and want == method:
                return act(self, *map(unquote, found.groups()), query=query, body=body)
        raise Refusal(501, f"{method} {path} is not made up here")

    def find(self, name: str) -> Container:
        for one in self.containers.values():
            if name in (one.id, one.name):
                return one
        raise Refusal(404, f"No such container: {name}")

    def version(self, **_: Any) -> tuple[int, Any]:
        return 200, {"Version": "27.5.1", "ApiVersion": "1.47", "MinAPIVersion": "1.24"}

    def pull(self, *, query: Mapping[str, str], **_: Any) -> tuple[int, Any]:
        name = f"{query['fromImage']}:{query.get('tag') or 'latest'}"
        self.pulling()
        if name not in self.images:
            raise Refusal(404, f"pull access denied for {query['fromImage']}")
        self.local.add(name)
        return 200, json.dumps({"status": f"Status: Image is up to date for {name}"}).encode()

    def image(self, name: str, **_: Any) -> tuple[int, Any]:
        if name not in self.local:
            raise Refusal(404, f"No such image: {name}")
        return 200, {"Id": "sha256:" + 64 * "0", "RepoTags": [name]}

    def network(self, *, body: Any, **_: Any) -> tuple[int, Any]:
        if body["Name"] in self.networks:
            raise Refusal(409, f"network with name {body['Name']} already exists")
        self.networks.add(body["Name"])
        return 201, {"Id": "net", "Warning": ""}

    def networked(self, name: str, **_: Any) -> tuple[int, Any]:
        return 200, {"Id": name, "Name": "torchx", "Driver": "bridge"}

    def create(self, *, query: Mapping[str, str], body: Any, **_: Any) -> tuple[int, Any]:
        name = query["name"]
        wrong = next(jsonschema.Draft202012Validator(CREATE).iter_errors(body), None)
        if wrong is not None or not _NAME.fullmatch(name):
            raise Refusal(400, f"invalid: {wrong.json_path if wrong else name}: {wrong}")
        if body["Image"] not in self.local:
            raise Refusal(404, f"No such image: {body['Image']}")
        with self._lock:
            if any(one.name == name for one in self.containers.values()):
                raise Refusal(409, f'Conflict. The container name "/{name}" is already in use')
            made = Container(f"{next(self._numbers):064x}", name, body, now())
            self.containers[made.id] = made
        return 201, {"Id": made.id, "Warnings": []}

    def listed(self, *, query: Mapping[str, str], **_: Any) -> tuple[int, Any]:
        wanted = json.loads(query.get("filters") or "{}").get("label", [])
        found = []
        for one in [*self.containers.values()]:
            labels = one.body.get("Labels") or {}
            told = {*labels, *(f"{name}={value}" for name, value in labels.items())}
            if told.issuperset(wanted):
                found.append({"Id": one.id, "Names": [f"/{one.name}"], "Labels": labels})
        return 200, found

    def inspect(self, name: str, **_: Any) -> tuple[int, Any]:
        return 200, self.find(name).inspected()

    def start(self, name: str, **_: Any) -> tuple[int, Any]:
        one = self.find(name)
        if one.status == "running":
            return 304, None
        if self.refuses_start:
            one.error = self.refuses_start
            raise Refusal(500, self.refuses_start)
        if not self.holds:
            one.status, one.started = "running", now()
        return 204, None

    def stop(self, name: str, **_: Any) -> tuple[int, Any]:
        one = self.find(name)
        if one.status != "running":
            return 304, None
        if self.deaf:
            time.sleep(one.body.get("StopTimeout") or 10)
        one.end(137 if self.deaf else 143)
        return 204, None

    def rename(self, name: str, *, query: Mapping[str, str], **_: Any) -> tuple[int, Any]:
        self.find(name).name = query["name"]
        return 204, None

    def remove(self, name: str, *, query: Mapping[str, str], **_: Any) -> tuple[int, Any]:
        one = self.find(name)
        if one.status == "running" and query.get("force") not in ("1", "True", "true"):
            raise Refusal(409, "cannot remove a running container")
        del self.containers[one.id]
        return 204, None

    def logs(self, name: str, *, query: Mapping[str, str], **_: Any) -> tuple[int, Any]:
        since = int(float(query.get("since") or 0) * 1e9)
        lines = [(ns, line) for ns, line in self.find(name).lines if ns >= since]
        if query.get("tail", "all") != "all":
            lines = lines[len(lines) - min(int(query["tail"]), len(lines)) :]
        stamped = query.get("timestamps") in ("1", "True", "true")
        frames = [(f"{stamp(ns)} ".encode() if stamped else b"") + line for ns, line in lines]
        return 200, b"".join(struct.pack(">BxxxL", 1, len(frame)) + frame for frame in frames)


_ONE = "/containers/([^/]+)"
_ROUTES: list[tuple[str, str, Callable[..., tuple[int, Any]]]] = [
    ("GET", "/version", Engine.version),
    ("POST", "/images/create", Engine.pull),
    ("GET", "/images/(.+)/json", Engine.image),
    ("POST", "/networks/create", Engine.network),
    ("GET", "/networks/([^/]+)", Engine.networked),
    ("POST", "/containers/create", Engine.create),
    ("GET", "/containers/json", Engine.listed),
    ("GET", f"{_ONE}/json", Engine.inspect),
    ("GET", f"{_ONE}/logs", Engine.logs),
    ("POST", f"{_ONE}/start", Engine.start),
    ("POST", f"{_ONE}/stop", Engine.stop),
    ("POST", f"{_ONE}/rename", Engine.rename),
    ("DELETE", _ONE, Engine.remove),
]


@contextmanager
def serving(engine: Engine) -> Iterator[str]:
    """Serve an Engine's API on loopback; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _do(self) -> None:
            address = urlsplit(self.path)
            path = re.sub(r"^/v\d+\.\d+(?=/)", "", address.path)
            query = {name: values[-1] for name, values in parse_qs(address.query).items()}
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"null")
            try:
                code, content = engine.answer(self.command, path, query, body)
            except Refusal as refused:
                code, content = refused.code, {"message": str(refused)}
            self.send_response(code)
            if isinstance(content, bytes):
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for chunk in (content, b"") if content else (b"",):
                    self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                return
            told = b"" if content is None else json.dumps(content).encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_POST = do_DELETE = do_HEAD = _do

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
