from itertools import islice, pairwise

import pytest

from ludus.envs.tasks import (
    SPLITS,
    TASKS_PER_SPLIT,
    GeneratedTasks,
    ListedTasks,
    Task,
    order,
    page_of,
    pick,
)
from ludus.errors import ConfigError, UnknownTask


def test_generated_tasks_have_the_split_and_index_as_id_and_their_own_seed() -> None:
    task = GeneratedTasks("validation").at(5)
    assert (task.id, task.split, task.seed) == ("validation/5", "validation", (1 << 40) + 5)


def test_no_seed_is_in_two_splits() -> None:
    edges = [(t.at(0).seed, t.at(TASKS_PER_SPLIT - 1).seed) for t in map(GeneratedTasks, SPLITS)]
    assert all(last < first for (_, last), (first, _) in pairwise(edges))


@pytest.mark.parametrize("index", [0, 1, 17, TASKS_PER_SPLIT - 1])
def test_an_id_finds_its_task(index: int) -> None:
    tasks = GeneratedTasks("train")
    assert tasks.find(tasks.at(index).id) == tasks.at(index)


@pytest.mark.parametrize(
    "task_id",
    ["", "train", "train/", "train/-1", "train/01", "train/1.0", "train/x", "test/1", "train/٣",
     "train/1/2", f"train/{TASKS_PER_SPLIT}", "train/" + "9" * 6000],
)  # fmt: skip
def test_other_texts_are_unknown_tasks(task_id: str) -> None:
    with pytest.raises(UnknownTask):
        GeneratedTasks("train").find(task_id)


@pytest.mark.parametrize("index", [-1, 10])
def test_an_index_outside_raises(index: int) -> None:
    with pytest.raises(IndexError, match=r"outside 0\.\.9"):
        GeneratedTasks("train", size=10).at(index)


def test_an_unknown_split_names_the_near_miss() -> None:
    with pytest.raises(UnknownTask, match="did you mean 'train'"):
        GeneratedTasks("trian")


def listed(*ids: str) -> ListedTasks:
    return ListedTasks("train", [Task(id=i, split="train") for i in ids])


def test_listed_tasks_are_found_by_index_and_id() -> None:
    tasks = listed("a", "b")
    assert (tasks.size, tasks.at(1).id, tasks.find("a")) == (2, "b", tasks.at(0))
    with pytest.raises(IndexError):
        tasks.at(2)
    with pytest.raises(IndexError):
        tasks.at(-1)
    with pytest.raises(UnknownTask):
        tasks.find("c")


def test_listed_tasks_must_have_different_ids() -> None:
    with pytest.raises(ConfigError, match="2 tasks have the id 'a'; give each its own"):
        listed("a", "b", "a")


def test_a_bare_seed_picks_by_index_and_wraps() -> None:
    tasks = listed("a", "b", "c")
    assert [pick(tasks, seed).id for seed in (0, 2, 3, 7, -1)] == ["a", "c", "a", "b", "c"]
    with pytest.raises(UnknownTask, match="no tasks"):
        pick(listed(), 0)


def test_each_epoch_holds_every_task_once_in_another_order() -> None:
    indices = list(islice(order(20, seed=1), 60))
    epochs = [indices[i : i + 20] for i in (0, 20, 40)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert indices == list(islice(order(20, seed=1), 60))
    assert indices != list(islice(order(20, seed=2), 60))


def test_an_endless_set_is_read_in_order() -> None:
    assert list(islice(order(None, seed=9), 4)) == [0, 1, 2, 3]


def test_randomness_differs_by_task_split_and_seed() -> None:
    drawn = {
        Task(id=i, split=s).rng(seed).random()
        for i in ("a", "b") for s in ("train", "test") for seed in (None, 0, 1)
    }  # fmt: skip
    assert len(drawn) == 12


def test_pages_end_where_the_tasks_do() -> None:
    page = page_of(listed("a", "b", "c"), 2, 10)
    assert ([t.id for t in page.tasks], page.size, page.offset) == (["c"], 3, 2)
    assert page_of(listed("a"), 5, 10).tasks == []
