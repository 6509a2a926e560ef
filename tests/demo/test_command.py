"""``airflow-ett demo`` where it cannot begin: one clear line, a non-zero exit, nothing started."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_ett import cli
from airflow_ett.demo.processes import of_stack

pytest.importorskip("airflow")

Demo = Callable[..., tuple[int, str]]


@pytest.fixture
def demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Demo:
    def run(*arguments: str) -> tuple[int, str]:
        home = ("--home", str(tmp_path / "home"), "--no-keep")
        code = cli.main(["demo", *home, *arguments])
        assert of_stack(tmp_path / "home") == set()
        return code, capsys.readouterr().err

    return run


def test_a_taken_port(demo: Demo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, error = demo("--port", str(port))
    assert code == 1
    assert error == f"airflow-ett: --port: {port} cannot be used: Address already in use\n"


def test_a_port_that_cannot_be_used_costs_no_results(demo: Demo, tmp_path: Path) -> None:
    results = tmp_path / "home" / "ett" / "ett.db"
    results.parent.mkdir(parents=True)
    results.touch()
    code, error = demo("--port", "99999")
    assert code == 1
    assert "99999 cannot be used: ports are numbers from 0 to 65535" in error
    assert results.exists()


def test_a_folder_that_is_not_the_demos(demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "notes").write_text("mine")
    code, error = demo()
    assert code == 1
    assert error.count("\n") == 1
    assert "--home" in error
