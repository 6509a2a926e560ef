"""The public names: changing this list is a decision, never an accident."""

import importlib

import pytest

PUBLIC = {
    "airflow_ett.events": """
        AttemptId BadLine Cause Chunk CursorFile CursorRecord Event JobContext JobKey JobState Kind
        Layer LogWriter RELAUNCH_CAUSES RunDir SCHEMA_VERSION USER_CAUSES agent_writer decode
        decode_cursor decode_log encode read_cursor read_log slug trainer_writer""",
    "airflow_ett.storage": "Entry FolderStorage Readable Storage is_at_api is_folder "
    "open_readable open_storage",
    "airflow_ett.trainer": "Session",
    "airflow_ett.trainer.graphs": "Padded mark_dynamic pad_to",
    "airflow_ett.checkpoints": """
        Checkpoint FileDigest Manifest commit discard folder folder_name list_checkpoints
        newest_committed newest_verified open_checkpoint retain verify""",
    "airflow_ett.metric": """
        AttemptMetric COMPONENTS Checkpoint Compile Component Components Fold JobMetric Phase
        Published Quality Recovery Span configured measure""",
    "airflow_ett.publish": "Published Registry Request Snapshot load publish",
    "airflow_ett.peers": "Problem Told read_ml_goodput read_resiliency",
    "airflow_ett.store": "IngestReport Store ingest_root ingest_run_dir open_store queries upgrade",
    "airflow_ett.fleet": "roll_up",
    "airflow_ett.operators": "ModelPublishOperator TorchXTrainingOperator model_asset",
}
NEEDS = {
    "airflow_ett.store": "sqlalchemy",
    "airflow_ett.fleet": "sqlalchemy",
    "airflow_ett.operators": "airflow",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_rooms_public_names(name: str) -> None:
    pytest.importorskip(NEEDS.get(name, "json"))
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name].split())
    for public in module.__all__:
        assert hasattr(module, public)


def test_every_error_has_one_root() -> None:
    errors = importlib.import_module("airflow_ett.errors")
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, errors.EttError)
            assert f" {name} " in errors.__doc__.replace("──", " ") + " EttError ", name
