"""The guide: how to start, and how to fix what advice names. It asks for no data."""

from collections.abc import Mapping, Sequence

from fastapi import APIRouter
from fastapi.responses import Response

from airflow_ett.ui import pages
from airflow_ett.ui.examples import Line, first_steps

router = APIRouter(include_in_schema=False)

CODE = {
    "publish": """
train = TorchXTrainingOperator(
    task_id="train",
    component_args=["--script", "/code/train.py", "-j", "1x8"],
)
publish = ModelPublishOperator(
    task_id="publish",
    checkpoint=train.output,
    model="ranker.model:build",
    registry="/models",
    name="ranker",
)
""",
    "compile_cache": """
model = build_model()
ett.compile_cache(model)
forward = torch.compile(model)
""",
    "fewer_graphs": """
done = 0
for batch in ett.track(loader, cursor=start):
    mark_dynamic(batch)  # one graph for all sizes of the batch
    train_step(batch)
    done += len(batch)
    ett.step(done)
""",
    "fast_batch": """
ett.fast_batch(lambda batch: loss_of(forward(batch), batch))
for number, batch in enumerate(ett.track(loader, cursor=start), 1):
    train_step(batch)
    ett.step(number * batch_size)
""",
    "parallel_init": """
made = ett.parallel_init(
    preproc_creation=build_preprocessing,
    train_module_creation=build_model,
)
model = made.train_module_creation
""",
    "checkpoint_interval": """
saver = ett.checkpointer(model=model, optimizer=optimizer, every_s=930)
""",
    "background_saves": """
saver = ett.checkpointer(model=model, optimizer=optimizer, background=True)
start = saver.restore()
""",
    "failures": """
train = TorchXTrainingOperator(
    task_id="train",
    component_args=["--script", "/code/train.py", "-j", "1x8"],
    retries=2,
    retry_policy=ETTRetryPolicy(out_of_memory="fail"),
)
""",
    "stalls": """
train = TorchXTrainingOperator(
    task_id="train",
    component_args=["--on_hang", "end", "--script", "/code/train.py", "-j", "1x8"],
)
""",
    "failure_detection": """
train = TorchXTrainingOperator(
    task_id="train",
    component="train",
    component_args=["--script", "/code/train.py", "-j", "1x8"],
    poll_interval=1,
)
""",
    "retry_wait": """
train = TorchXTrainingOperator(
    task_id="train",
    component_args=["--script", "/code/train.py", "-j", "1x8"],
    max_relaunches=3,
    retries=2,
    retry_policy=ETTRetryPolicy(delays=(0, 4, 16, 60)),
)
""",
    "data_wait": """
loader = DataLoader(
    dataset,
    batch_size=batch_size,
    num_workers=8,
    prefetch_factor=4,
    persistent_workers=True,
    pin_memory=True,
)
for batch in ett.track(ett.parcels(loader, 16), cursor=start):
    ...
""",
    "evaluation": """
with ett.phase("evaluation"):
    for batch in held_out:
        if ett.preempted:
            break
        score(batch)
""",
}
"""What to write, by the key of the advice. Tests hold each against what there is."""


@router.get("/guide")
def guide() -> Response:
    return pages.answer(guide_page())


def guide_page() -> str:
    """Return the page; it has a section for each key of advice, under that key."""
    code: Mapping[str, Sequence[Line]] = {key: _lines(text) for key, text in CODE.items()}
    return pages.render("guide.html", steps=first_steps(), code=code)


def _lines(text: str) -> list[Line]:
    return [Line(line, added=False) for line in text.strip().splitlines()]
