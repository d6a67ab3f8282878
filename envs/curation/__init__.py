"""Task sets: curated from files, measured with a model, and written by a model."""

from .collection import (
    CandidateTasks,
    LeftOut,
    TaskCollection,
    likeness,
    read_candidates,
    words_of,
    write_collection,
)
from .measured import MeasureSettings, measure_tasks
from .models import ServerModel, TaskAuthor, TaskModel, WriteSettings
from .questions import write_questions
from .round_trip import round_trip
from .rubrics import write_rubrics

__all__ = [
    "CandidateTasks",
    "LeftOut",
    "MeasureSettings",
    "ServerModel",
    "TaskAuthor",
    "TaskCollection",
    "TaskModel",
    "WriteSettings",
    "likeness",
    "measure_tasks",
    "read_candidates",
    "round_trip",
    "words_of",
    "write_collection",
    "write_questions",
    "write_rubrics",
]
