"""Task sets: curated from files, measured with a model, and written by a model."""

from .collection import (
    CandidateTasks,
    LeftOut,
    TaskCollection,
    curate,
    likeness,
    read_candidates,
    words_of,
    write_collection,
)
from .measured import MeasureSettings, measure_tasks
from .models import ServerModel, TaskModel
from .questions import WriteSettings, write_questions
from .round_trip import round_trip
from .rubrics import write_rubrics

__all__ = [
    "CandidateTasks",
    "LeftOut",
    "MeasureSettings",
    "ServerModel",
    "TaskCollection",
    "TaskModel",
    "WriteSettings",
    "curate",
    "likeness",
    "measure_tasks",
    "read_candidates",
    "round_trip",
    "words_of",
    "write_collection",
    "write_questions",
    "write_rubrics",
]
