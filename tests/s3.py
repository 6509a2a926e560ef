"""A real S3 server on loopback for tests: moto's, in this process.

It knows ``If-None-Match`` on a put, but looks and writes in two steps, where S3 has one: a lock
makes one of them here.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
from typing import Any

import pytest

_numbers = itertools.count(1)


@functools.cache
def endpoint() -> str:
    """Return the server's address; it is started once and lives as long as this process."""
    s3fs = pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    s3fs.S3FileSystem.clear_instance_cache()  # of those that may know another server
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    lock, put = threading.Lock(), S3Response.put_object

    def put_alone(self: Any) -> Any:
        with lock:
            return put(self)

    S3Response.put_object = put_alone
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


def new_bucket(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URI of an empty bucket; the environment tells fsspec where it is."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint(),
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "not-so-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    import s3fs

    bucket = f"bucket-{next(_numbers)}"
    s3fs.S3FileSystem().mkdir(bucket)
    return f"s3://{bucket}"
