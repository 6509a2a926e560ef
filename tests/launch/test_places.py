"""Where a job is to be found: what is asked of the scheduler, and what is left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs import AppDryRunInfo, AppState, runopts

from airflow_ett.checkpoints import commit, folder_name
from airflow_ett.errors import ConfigurationError
from airflow_ett.events import AttemptId
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.places import PlaceFinder, Places
from airflow_ett.launch.schedulers.local_detached import LocalDetached


class WithPages(Scheduler[Mapping[str, Any]]):
    """A scheduler that knows one app, ``ours``, and shows it on a page, or cannot be asked."""

    def __init__(self, page: str | None, error: Exception | None = None) -> None:
        super().__init__("remote", "test")
        self._page = page
        self._error = error
        self.asked = 0

    def _run_opts(self) -> runopts:
        options = runopts()
        options.add("queue", type_=str, help="the queue", required=True)
        return options

    def _submit_dryrun(self, app: Any, cfg: Any) -> AppDryRunInfo[Any]:
        raise NotImplementedError

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        raise NotImplementedError

    def _cancel_existing(self, app_id: str) -> None:
        raise NotImplementedError

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        return []

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        self.asked += 1
        if self._error:
            raise self._error
        if app_id != "ours":
            return None
        return DescribeAppResponse(app_id=app_id, state=AppState.RUNNING, ui_url=self._page)


@pytest.fixture
def remote() -> Callable[..., Gateway]:
    def make(page: str | None, error: Exception | None = None) -> Gateway:
        scheduler = WithPages(page, error)
        return Gateway({"remote": lambda session, **_: scheduler})

    return make


def finder(gateway: Gateway, checkpoints: Path) -> PlaceFinder:
    return PlaceFinder(gateway, "/runs/j", str(checkpoints))


def test_a_scheduler_with_pages(remote: Any, tmp_path: Path) -> None:
    places = finder(remote("https://c/ours"), tmp_path).find("remote://ett/ours")
    assert places == Places("/runs/j", "remote://ett/ours", "https://c/ours", "https://c/ours")


@pytest.mark.parametrize("page", [None, ""])
def test_a_scheduler_without_pages(remote: Any, tmp_path: Path, page: str | None) -> None:
    places = finder(remote(page), tmp_path).find("remote://ett/ours")
    assert places == Places("/runs/j", "remote://ett/ours")


def test_an_app_that_is_unknown_or_not_yet_submitted(remote: Any, tmp_path: Path) -> None:
    find = finder(remote("https://c"), tmp_path).find
    assert find(None) == Places("/runs/j")
    assert find("remote://ett/other") == Places("/runs/j", "remote://ett/other")


def test_a_scheduler_is_asked_until_it_answers_once_for_an_app(tmp_path: Path) -> None:
    scheduler = WithPages("https://c", ConnectionError("refused"))
    find = finder(Gateway({"remote": lambda session, **_: scheduler}), tmp_path).find
    assert find("remote://ett/ours") == Places("/runs/j", "remote://ett/ours")
    scheduler._error = None
    assert find("remote://ett/ours").page == "https://c"
    asked = scheduler.asked
    assert find("remote://ett/ours").page == "https://c"
    assert scheduler.asked == asked
    assert find("remote://ett/next") == Places("/runs/j", "remote://ett/next")


def test_the_newest_committed_checkpoint_without_a_word_about_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for cursor in (64, 640):
        path = tmp_path / folder_name(cursor, AttemptId(1))
        path.mkdir()
        commit(path, job="j" * 20, attempt=AttemptId(1), epoch=1, cursor=cursor)
    (tmp_path / folder_name(6400, AttemptId(1))).mkdir()
    places = finder(Gateway({}), tmp_path).find(None)
    assert places.checkpoint == str(tmp_path / folder_name(640, AttemptId(1)))
    assert caplog.records == []


def test_local_detached_has_a_log_file_right_after_submit(tmp_path: Path) -> None:
    scheduler = LocalDetached("test", tmp_path / "apps")
    gateway = Gateway({"local_detached": lambda session, **_: scheduler})
    component = tmp_path / "component.py"
    component.write_text(
        "from torchx.specs import AppDef, Role\n\n"
        "def say(text: str) -> AppDef:\n"
        "    role = Role(name='r', image='', entrypoint='/bin/echo', args=[text])\n"
        "    return AppDef(name='x', roles=[role])\n"
    )
    prepared = gateway.prepare(f"{component}:say", ["--text", "hello"], "local_detached")
    places = finder(gateway, tmp_path).find(gateway.submit(prepared, "app"))
    assert (places.handle, places.page) == ("local_detached://ett/app", None)
    deadline = time.monotonic() + 15
    while not gateway.status(str(places.handle)).terminal:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert Path(str(places.logs)).read_text() == "hello\n"


def test_options_are_checked_without_an_app(remote: Any) -> None:
    assert remote(None).check("remote", {"queue": "gpu"}) == {"queue": "gpu"}
    with pytest.raises(ConfigurationError, match="queue") as caught:
        remote(None).check("remote")
    assert caught.value.parameter == "cfg"
