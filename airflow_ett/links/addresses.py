"""Where the links of a task instance lead, and what may be shown. Pure.

Addresses within Airflow are relative: its UI resolves them against its own base path. What has no
address of its own (a file, a folder) is shown as text on the task instance's XCom tab, alone there.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from airflow_ett.hooks.masking import Redact

_MASK = "***"


@dataclass(frozen=True, slots=True)
class TaskAt:
    """A task instance; ``map_index`` is -1 where unmapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

    @property
    def ett_page(self) -> str:
        """Its ETT% tab: the training itself."""
        return f"{self.page}/plugin/ett-task"

    def xcom_page(self, key: str) -> str:
        """The tab that shows its XComs, filtered for one of them."""
        return f"{self.page}/xcom?key_pattern={quote(key, safe='')}"

    @property
    def page(self) -> str:
        """Its own page in Airflow."""
        names = [quote(name, safe="") for name in (self.dag_id, self.run_id, self.task_id)]
        mapped = f"/mapped/{self.map_index}" if self.map_index >= 0 else ""
        return "dags/{}/runs/{}/tasks/{}".format(*names) + mapped


def web_address(text: str | None) -> str:
    """Return ``text`` if it is the whole address of a web page, else ''."""
    whole = text is not None and text.startswith(("http://", "https://")) and _MASK not in text
    return str(text) if whole else ""


def without_secrets(text: str | None, redact: Redact) -> str | None:
    """Return a path or an address without passwords, tokens and whatever the masker knows."""
    if text is None or "://" not in text:
        return None if text is None else str(redact(text))
    parts = urlsplit(text)
    named = parse_qsl(parts.query, keep_blank_values=True)
    kept = [(name, value) for name, value in named if redact(value, name) == value]
    parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    if kept != named:
        parts = parts._replace(query=urlencode(kept))
    return str(redact(parts.geturl()))
