"""Rules about tasks: stable ids, and splits that share nothing."""

from __future__ import annotations

from itertools import combinations

from ludus.contract import NotApplicable
from ludus.errors import CheckFailed, UnknownTask

from ..tasks import TaskSet
from .subject import LOOKED_AT, EnvUnderCheck, first

COMPARED = 500
"""Number of tasks of each split whose ids are compared."""
NO_SUCH_TASK = "no-such-task/of-any-split"


def has_stable_tasks(subject: EnvUnderCheck) -> str:
    """An index gives the same task in every instance, and the task's id finds that task again."""
    splits = subject.splits()
    if not splits:
        raise CheckFailed("no split has any tasks; tasks(split) must have some for 'train'")
    for split, tasks in splits.items():
        second_tasks = subject.other.tasks(split)
        for index, task in enumerate(first(tasks, LOOKED_AT)):
            if task.split != split:
                raise CheckFailed(f"task {task.id!r} of split {split!r} says split {task.split!r}")
            if second_tasks.at(index) != task:
                raise CheckFailed(
                    f"task {index} of split {split!r} is {task.id!r} in one instance and "
                    f"{second_tasks.at(index).id!r} in another; ids must not depend on chance"
                )
            if tasks.find(task.id) != task:
                raise CheckFailed(f"find({task.id!r}) is not the task at {index} of {split!r}")
        _refuses_what_is_not_there(tasks)
    return ", ".join(
        f"{split}: " + ("without end" if tasks.size is None else f"{tasks.size} tasks")
        for split, tasks in splits.items()
    )


def _refuses_what_is_not_there(tasks: TaskSet) -> None:
    try:
        tasks.find(NO_SUCH_TASK)
    except UnknownTask:
        pass
    else:
        raise CheckFailed(f"find({NO_SUCH_TASK!r}) found a task; raise UnknownTask")
    if tasks.size is None:
        return
    try:
        tasks.at(tasks.size)
    except IndexError:
        return
    raise CheckFailed(f"at({tasks.size}) is past the end and found a task; raise IndexError")


def keeps_splits_apart(subject: EnvUnderCheck) -> str:
    """No id is in two splits, and no two splits show the same problems in the same order."""
    splits = subject.splits()
    if len(splits) < 2:
        raise NotApplicable(f"there is one split, {', '.join(splits)}")
    for left, right in combinations(splits, 2):
        common = {task.id for task in first(splits[left], COMPARED)} & {
            task.id for task in first(splits[right], COMPARED)
        }
        if common:
            raise CheckFailed(f"{left!r} and {right!r} share tasks, such as {min(common)!r}")
        # Compare first observations by index; if all are equal, the environment ignores the split.
        shown_tasks = [
            [
                repr(subject.gym.reset(seed=0, options={"task": task.id})[0])
                for task in first(subject.gym.tasks(split), LOOKED_AT)
            ]
            for split in (left, right)
        ]
        if shown_tasks[0] == shown_tasks[1] and len(set(shown_tasks[0])) >= 3:
            raise CheckFailed(
                f"{left!r} and {right!r} show the same problems; draw them from self.task.seed or "
                "self.rng, which differ by split"
            )
    return f"{', '.join(splits)} share no task"
