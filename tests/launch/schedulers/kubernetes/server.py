"""An API server on loopback over a cluster in memory, for Kubernetes' own client to talk to.

::

    with serving(folder) as server:
        scheduler = create_scheduler("test", kubeconfig=str(server.kubeconfig))
        server.cluster.full = True
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

from tests.launch.schedulers.kubernetes.volcano import Cluster

Right = tuple[str, str, str]

TOKEN = "a-token-of-this-cluster"

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[a-z.]+)/v1(?:alpha|beta)1)/namespaces/(?P<namespace>[^/]+)"
    r"/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[a-z]+))?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_GROUPS = {"jobs": "batch.volcano.sh", "podgroups": "scheduling.volcano.sh"}


class Refusal(Exception):
    """What the server answers in place of what was asked for."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"kind": "Status", "status": "Failure", "reason": reason, "code": status,
                     "message": message}  # fmt: skip


@dataclass
class Server:
    """``asked`` are the requests so far. ``before`` may raise or wait in a request's place, and
    ``after`` when it was done but not answered yet; both get method and path. ``rights`` are what
    is allowed, as group, resource and verb, None for everything; ``used`` what was made use of.
    """

    cluster: Cluster
    kubeconfig: Path
    asked: list[str] = field(default_factory=list)
    before: Callable[[str, str], None] | None = None
    after: Callable[[str, str], None] | None = None
    installed: bool = True
    rights: frozenset[Right] | None = None
    used: set[Right] = field(default_factory=set)

    def answer(self, method: str, target: str, headers: Any, body: Any) -> tuple[int, bytes]:
        """Do what a request asks for; return status and content."""
        url = urlsplit(target)
        self.asked.append(f"{method} {url.path}")
        try:
            if headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refusal(401, "Unauthorized", "Unauthorized")
            if self.before:
                self.before(method, url.path)
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            with self.cluster.lock:
                said = self._do(method, url.path, query, body)
            if self.after:
                self.after(method, url.path)
        except Refusal as refusal:
            return refusal.status, json.dumps(refusal.body).encode()
        status = 201 if method == "POST" else 200
        return status, said if isinstance(said, bytes) else json.dumps(said).encode()

    def _do(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        match = _PATH.fullmatch(path)
        if match is None or match["group"] != _GROUPS.get(match["kind"]):
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if match["group"] and not self.installed:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        self._authorize(method, match)
        do = getattr(self, f"_{method.lower()}_{match['kind']}")
        return do(match["namespace"], match["name"], match["part"], query, body)

    def _authorize(self, method: str, match: re.Match[str]) -> None:
        verb = _VERBS[method] if method != "GET" else "get" if match["name"] else "list"
        kind = match["kind"] + (f"/{match['part']}" if match["part"] else "")
        right = (match["group"] or "", kind, verb)
        self.used.add(right)
        if self.rights is not None and right not in self.rights:
            raise Refusal(403, "Forbidden", f"{kind} is forbidden: cannot {verb} {right[0]}")

    def _get_jobs(self, space: str, name: str | None, *rest: Any) -> Any:
        return self._read(self.cluster.jobs, "jobs.batch.volcano.sh", space, name, rest[1])

    def _get_podgroups(self, space: str, name: str | None, *rest: Any) -> Any:
        return self._read(self.cluster.groups, "podgroups", space, name, rest[1])

    def _post_jobs(self, space: str, *rest: Any) -> Any:
        query, job = rest[2], rest[3]
        if space not in self.cluster.namespaces:
            raise Refusal(404, "NotFound", f'namespaces "{space}" not found')
        name = job["metadata"]["name"]
        if (space, name) in self.cluster.jobs:
            message = f'jobs.batch.volcano.sh "{name}" already exists'
            raise Refusal(409, "AlreadyExists", message)
        admit(job)
        return job if query.get("dryRun") else self.cluster.add_job(space, copy.deepcopy(job))

    def _patch_jobs(self, space: str, name: str, part: str, _: Any, body: Any) -> Any:
        job = self._read(self.cluster.jobs, "jobs.batch.volcano.sh", space, name, {})
        assert (part, body) == ("status", {"status": {"state": {"phase": "Aborted"}}})
        self.cluster.abort(space, name)
        return job

    def _get_pods(self, space: str, name: str | None, part: str | None, query: Any, _: Any) -> Any:
        pod = self._read(self.cluster.pods, "pods", space, name, query)
        return self._log(space, pod, query) if part == "log" else pod

    def _log(self, space: str, pod: Any, query: dict[str, str]) -> bytes:
        name = pod["metadata"]["name"]
        if query["container"] != pod["spec"]["containers"][0]["name"]:
            raise Refusal(400, "BadRequest", f"container is not valid for pod {name}")
        if pod["status"]["phase"] == "Pending":
            raise Refusal(400, "BadRequest", f"container in pod {name!r} is waiting to start")
        since_ns = (time.time() - float(query.get("sinceSeconds", 1e9))) * 1e9
        lines = self.cluster.logs.get((space, name), [])
        told = [stamped(ns, text) for ns, text in lines if ns >= since_ns]
        told = told[-int(query["tailLines"]) :] if "tailLines" in query else told
        return "".join(told).encode()[: int(query.get("limitBytes", 1 << 40))]

    def _get_events(self, space: str, *rest: Any) -> Any:
        name = rest[2]["fieldSelector"].rpartition("=")[2]
        found = [each for each in self.cluster.events if each["involvedObject"]["name"] == name]
        return {"items": found}

    def _post_secrets(self, space: str, *rest: Any) -> Any:
        name = rest[3]["metadata"]["name"]
        if (space, name) in self.cluster.secrets:
            raise Refusal(409, "AlreadyExists", f'secrets "{name}" already exists')
        return self._put_secrets(space, name, *rest[1:])

    def _put_secrets(self, space: str, name: str, *rest: Any) -> Any:
        if space not in self.cluster.namespaces:
            raise Refusal(404, "NotFound", f'namespaces "{space}" not found')
        secret = copy.deepcopy(rest[2])
        given = secret.pop("stringData", {})
        secret["data"] = {k: base64.b64encode(v.encode()).decode() for k, v in given.items()}
        self.cluster.secrets[space, name] = secret
        return secret

    def _patch_secrets(self, space: str, name: str, *rest: Any) -> Any:
        secret = self._read(self.cluster.secrets, "secrets", space, name, {})
        secret["metadata"] |= rest[2]["metadata"]
        return secret

    def _delete_secrets(self, space: str, name: str, *_: Any) -> Any:
        self._read(self.cluster.secrets, "secrets", space, name, {})
        del self.cluster.secrets[space, name]
        return {"kind": "Status", "status": "Success"}

    def _read(self, things: Any, kind: str, space: str, name: str | None, query: Any) -> Any:
        if name is None:
            wanted = query.get("labelSelector", "")
            own = [thing for (where, _), thing in things.items() if where == space]
            return {"items": [thing for thing in own if selected(thing, wanted)]}
        if (space, name) not in things:
            raise Refusal(404, "NotFound", f'{kind} "{name}" not found')
        return things[space, name]


def selected(thing: Any, selector: str) -> bool:
    """Tell whether a thing's labels fit ``key`` or ``key in (a,b)``."""
    labels = thing["metadata"].get("labels", {})
    key, _, values = selector.partition(" in ")
    return key in labels and (not values or labels[key] in values.strip("()").split(","))


def stamped(ns: int, text: str) -> str:
    """Return a line of a log with its time before it."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 10**9))
    return f"{whole}.{ns % 10**9:09d}Z {text}"


def admit(job: Any) -> None:
    """Refuse what the API server's schema or Volcano's webhook refuses."""
    for task in job["spec"]["tasks"]:
        spec = task["template"]["spec"]
        volumes = {volume["name"] for volume in spec.get("volumes", ())}
        pod = f"{job['metadata']['name']}-{task['name']}-0"
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", pod):
            _invalid(f"{pod}: name part must be no more than 63 characters")
        for container in spec["containers"]:
            for mount in container.get("volumeMounts", ()):
                if mount["name"] not in volumes:
                    _invalid(f'volumeMounts[0].name: Not found: "{mount["name"]}"')
    events = [policy["event"] for policy in job["spec"].get("policies", ())]
    if len(set(events)) != len(events):
        _invalid("duplicate event")


def _invalid(message: str) -> NoReturn:
    webhook = 'admission webhook "validatejob.volcano.sh" denied the request'
    raise Refusal(422, "Invalid", f"{webhook}: {message}")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a new cluster; the kubeconfig lies in ``folder``."""
    server = Server(Cluster(), folder / "kubeconfig")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = self.rfile.read(length)
            if "patch" in self.headers.get("Content-Type", ""):
                assert "merge-patch" in self.headers["Content-Type"]
            body = json.loads(sent) if sent else None
            try:
                status, said = server.answer(self.command, self.path, self.headers, body)
            except ConnectionError:  # a test loses the answer
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.kubeconfig.write_text(json.dumps(_kubeconfig(http.server_address[1])))
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join(10)


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "airflow", "user": {"token": TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "airflow"}}],
    }
