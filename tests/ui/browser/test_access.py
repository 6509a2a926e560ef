"""Who sees what: anonymous, without the right, and with it (field report R31)."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
import requests

from tests.ui.browser.views import View, once
from tests.ui.gallery.names import DAILY, SEALED, SECRET

pytestmark = [pytest.mark.airflow, pytest.mark.browser]


def _paths(*, of_a_dag: bool = False, for_programs: bool = False) -> list[str]:
    """Return the addresses that are read, with ``{dag_id}`` where it stands."""
    from airflow_ett.api.app import is_for_programs
    from airflow_ett.ui.app import create_app

    found = [
        route.path
        for route in create_app().routes
        if "GET" in getattr(route, "methods", ()) and is_for_programs(route.path) == for_programs
    ]
    return [path for path in found if not of_a_dag or "{dag_id}" in path]


def _ask(stack: Any, path: str, dag_id: str, token: str | None) -> requests.Response:
    url = f"{stack.url}/ett{path}".replace("{dag_id}", quote(dag_id, safe=""))
    cookies = {"_token": token} if token else None
    return requests.get(url, cookies=cookies, timeout=10)


def test_every_page_asks_an_anonymous_visitor_to_sign_in(stack: Any) -> None:
    for path in [*_paths(), "/api/v1/docs"]:
        for token, allowed in ((None, (401,)), ("forged", (401, 403))):
            answer = _ask(stack, path, DAILY, token)
            assert answer.status_code in allowed, path
            assert "Your session has ended" in answer.text, path


def test_every_route_of_the_api_asks_an_anonymous_program_for_a_token(stack: Any) -> None:
    for path in _paths(for_programs=True):
        answer = _ask(stack, path, DAILY, None)
        assert answer.status_code in (401, 403), path
        assert DAILY not in answer.text


def test_every_page_of_a_dag_is_denied_without_the_right(
    stack: Any, tokens: dict[str, str]
) -> None:
    paths = _paths(of_a_dag=True)
    assert len(paths) >= 4
    for path in paths:
        for dag_id in (SECRET, SEALED, "secret_and_not_there"):
            denied = _ask(stack, f"{path}?run_id=manual__first", dag_id, tokens["bob"])
            assert denied.status_code == 403, path
            assert "You have no access to this Dag's runs" in denied.text, path


def test_every_page_of_a_dag_is_shown_to_who_may_read_it(
    stack: Any, tokens: dict[str, str]
) -> None:
    for path in ("/dag/{dag_id}", "/run/{dag_id}?run_id=manual__first"):
        for user, dag_id in (("admin", SECRET), ("admin", SEALED), ("bob", DAILY)):
            assert _ask(stack, path, dag_id, tokens[user]).status_code == 200, path


def test_the_fleet_has_no_dag_that_the_reader_may_not_see(
    stack: Any, tokens: dict[str, str]
) -> None:
    pages = {user: _ask(stack, "/fleet?all=1", DAILY, tokens[user]).text for user in tokens}
    assert SECRET not in pages["bob"]
    assert SEALED not in pages["bob"]
    assert pages["bob"] != pages["admin"]


def test_a_tab_without_the_right_says_so_within_airflow(
    stack: Any, gallery: Any, session: Callable[[str], Any]
) -> None:
    page = session("bob").new_page()
    view = View(page, stack.url, gallery.runs)
    frame = view.open("dags/{sealed}/plugin/ett")
    frame.get_by_role("heading", name="You have no access to this Dag's runs").wait_for()
    text = frame.locator("main").inner_text()
    assert "bob" in text
    assert SEALED in text
    frame.get_by_role("link", name="Open the Dags you may see").click()
    page.wait_for_url(f"{view.url}/dags*")
    page.close()


def test_a_session_that_has_ended_is_told_within_the_tab(
    stack: Any, gallery: Any, chromium: Any, tokens: dict[str, str]
) -> None:
    context = chromium.new_context()
    host = stack.url.removesuffix("/team-a")
    context.add_cookies([{"name": "_token", "value": tokens["bob"], "url": f"{host}/"}])
    view = View(context.new_page(), stack.url, gallery.runs)
    view.open("ett/dag/{daily}")
    context.clear_cookies()
    view.page.locator("select[name=period]").select_option("7days")
    view.page.get_by_role("heading", name="Your session has ended").wait_for()
    assert once(lambda: any(error.startswith("401") for error in view.errors), view.page)
    context.close()
