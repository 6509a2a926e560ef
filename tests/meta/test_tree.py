"""What is in the checkout: no machine's paths, no commands that do not exist, sound containers."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FORBIDDEN = {
    # The brackets keep these lines from finding themselves.
    "a path of one machine": r"/wo[r]k/|/roo[t]/|/tm[p]/|\.\./share[d]|shared/fact[s]",
    "a package registry's host": r"py[p]i\.org|pythonhoste[d]|registry\.npmj[s]",
}


@pytest.fixture(scope="module")
def texts(repo: Path) -> dict[str, str]:
    if shutil.which("git") is None or not (repo / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=repo,
        capture_output=True,
        check=True,
    )
    found = {}
    for name in listed.stdout.decode().split("\0"):
        path = repo / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            found[name] = content.decode()
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(texts: dict[str, str], what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_files_fit_in_the_head(texts: dict[str, str]) -> None:
    long = {n: len(t.splitlines()) for n, t in texts.items() if n.endswith(".py")}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}


def test_every_make_command_in_the_docs_exists(repo: Path, texts: dict[str, str]) -> None:
    makefile = (repo / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = {
        target
        for name, text in texts.items()
        if name.endswith(".md")
        for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
        for target in re.findall(r"^`?make ([a-z]+)", code, re.MULTILINE)
    }
    assert {"demo", "test"} <= named
    assert named <= targets


def test_ci_runs_the_readmes_test_command(repo: Path) -> None:
    assert "exec make test\n" in (repo / ".ci" / "run").read_text()
    assert "make test" in (repo / "README.md").read_text()
