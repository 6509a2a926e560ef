"""Another team's plugin, with a view in each place where ours has one."""

from airflow.plugins_manager import AirflowPlugin
from fastapi import FastAPI
from fastapi.responses import HTMLResponse

app = FastAPI()


@app.get("/{place}")
def page(place: str) -> HTMLResponse:
    return HTMLResponse(f"<h1>Neighbour: {place}</h1>")


class NeighbourPlugin(AirflowPlugin):
    name = "neighbour"
    fastapi_apps = [{"app": app, "url_prefix": "/neighbour", "name": "Neighbour"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Neighbour",
            "href": f"neighbour/{place}",
            "destination": place,
            "url_route": f"neighbour-{place}",
        }
        for place in ("nav", "dag", "dag_run", "task_instance")
    ]
