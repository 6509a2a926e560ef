"""The style sheet as the pages have it, and its colours by theme."""

import re

from airflow_ett.ui.pages import style_sheet

CSS = style_sheet()


def _colours(selector: str) -> dict[str, str]:
    blocks = re.findall(rf"^{re.escape(selector)} \{{(.*?)^\}}", CSS, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]+);", "".join(blocks)))


THEMES = {"light": _colours(":root"), "dark": _colours(":root.dark")}
"""Theme to its tokens, without ``--``, and their colours."""
