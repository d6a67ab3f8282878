"""ludus/files-v0: what each chore leads to, by hand, and what the real bash makes of it."""

import random
from collections import Counter
from typing import Any

import pytest

from ludus.agent import ScriptedPolicy, Stop, Trajectory, play
from ludus.background import run_on_loop
from ludus.envs import EnvSession
from ludus.envs.families.files import Files
from ludus.envs.families.files.chores import CHORES, draw_tree, same
from ludus.envs.families.files.files_env import Job, Shell
from ludus.errors import ConfigError, LudusError, ToolError
from ludus.messages import Message, ToolCall, assistant
from ludus.sandboxes.api import default_sandbox

TREE = {
    "a.log": "one\ntwo\n",
    "notes/b.log": "",
    "notes/draft_c.txt": "the drum\n",
    "notes/draft_d_2019.md": "b\na\nb\n",
    "data/e_2019.txt": "drum kettle\n",
    "data/f_2020.csv": "drum,1\n",
}


def drawn(kind: str, tree: dict[str, str], wanted: str) -> Any:
    """The first chore of a kind whose text has `wanted` in it."""
    for seed in range(2000):
        chore = CHORES[kind](random.Random(seed), tree)
        if chore is not None and wanted in chore.text:
            return chore
    raise AssertionError(f"no {kind} with {wanted!r}")


@pytest.mark.parametrize(
    ("kind", "wanted", "gone", "new"),
    [
        ("gather", ".log file, wherever it is, into a new folder shelf", ["a.log", "notes/b.log"],
         {"shelf/a.log": "one\ntwo\n", "shelf/b.log": ""}),
        ("sweep", "", ["notes/b.log"], {}),
        ("rename", "begins with final_", ["notes/draft_c.txt", "notes/draft_d_2019.md"],
         {"notes/final_c.txt": "the drum\n", "notes/final_d_2019.md": "b\na\nb\n"}),
        ("replace", ".txt file, replace the word drum by copper", [],
         {"notes/draft_c.txt": "the copper\n", "data/e_2019.txt": "copper kettle\n"}),
        ("find", "contain the word drum into found.out", [],
         {"found.out": "data/e_2019.txt\ndata/f_2020.csv\nnotes/draft_c.txt\n"}),
        ("count", "all .txt files together and write the number into sum.out", [],
         {"sum.out": "2\n"}),
        ("join", "directly in data, one after the other", [], None),
        ("tidy", "lines of notes/draft_d_2019.md", [], {"notes/draft_d_2019.md": "a\nb\n"}),
        ("file_by_year", "", ["notes/draft_d_2019.md", "data/e_2019.txt", "data/f_2020.csv"],
         {"2019/draft_d_2019.md": "b\na\nb\n", "2019/e_2019.txt": "drum kettle\n",
          "2020/f_2020.csv": "drum,1\n"}),
        ("drop", "contains the word kettle", ["data/e_2019.txt"], {}),
    ],
)  # fmt: skip
def test_what_each_chore_leads_to_by_hand(
    kind: str, wanted: str, gone: list[str], new: dict[str, str] | None
) -> None:
    result = drawn(kind, TREE, wanted).result
    if new is None:  # the name of the file is drawn
        (name,) = result.keys() - TREE.keys()
        new = {name: "drum kettle\ndrum,1\n"}
    assert result == {path: text for path, text in TREE.items() if path not in gone} | new


@pytest.mark.parametrize("kind", ["gather", "file_by_year"])
def test_files_of_one_name_are_not_moved_into_one_folder(kind: str) -> None:
    """Two renamings may lead to them; which one a move keeps depends on the order."""
    tree = {"inbox/final_a_2019.txt": "x\n", "notes/final_a_2019.txt": "y\n"}
    assert all(CHORES[kind](random.Random(seed), tree) is None for seed in range(50))


def test_line_feeds_at_the_end_do_not_count_and_everything_else_does() -> None:
    assert same({"a": "x"}, {"a": "x\n\n"})
    assert not same({"a": "x"}, {"a": "x "})
    assert not same({"a": "x"}, {"a": "x", "b": ""})
    assert not same({"a": "x", "b": ""}, {"a": "x"})


def test_trees_have_files_of_different_names() -> None:
    for seed in range(50):
        tree = draw_tree(random.Random(seed), 30)
        assert len(tree) == 30
        assert len({path.rpartition("/")[2] for path in tree}) == 30
        assert all(path == path.strip("/") and " " not in path for path in tree)


def test_jobs_have_chores_of_every_kind_and_number_and_splits_share_none() -> None:
    env = Files()
    texts: dict[str, set[str]] = {}
    numbers: Counter[int] = Counter()
    for split in ("train", "validation", "test"):
        tasks = env.tasks(split)
        jobs = [tasks.job(tasks.at(index)) for index in range(100)]
        texts[split] = {f"{job.text} {sorted(job.tree)}" for job in jobs}
        numbers.update(len(job.chores) for job in jobs)
        assert not any(same(job.tree, job.result) for job in jobs)
    assert set(numbers) == {1, 2, 3}
    assert min(numbers.values()) > 30
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["validation"] & texts["test"]
    assert env.tasks("train").at(3) == Files().tasks("train").at(3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"kinds": ["paint"]}, "kinds are gather"),
        ({"min_chores": 0}, "1 <= min_chores"),
        ({"max_chores": 7}, "max_chores <= 6"),
        ({"min_files": 3}, "4 <= min_files"),
        ({"max_files": 5}, "min_files <= max_files"),
        ({"turns": 0}, "turns >= 1"),
        ({"command_timeout_s": 100}, "command_timeout_s above 0, at most 60"),
    ],
)
def test_settings_that_cannot_be_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Files(**arguments)


# --- in a sandbox -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sandbox() -> None:
    try:
        run_on_loop(default_sandbox(), timeout_s=60)
    except (LudusError, TimeoutError) as error:
        pytest.skip(f"no sandbox here: {error}")


needs_sandbox = pytest.mark.usefixtures("sandbox")


def shell(command: str) -> Message:
    return assistant("", [ToolCall(name="shell", arguments={"command": command}, id="c")])


DONE = assistant("", [ToolCall(name="done", id="c")])


async def played(env: Files, *actions: Message | str, seed: int = 0) -> Trajectory:
    left = list(actions)
    policy = ScriptedPolicy(lambda _: left.pop(0))
    session = EnvSession(env)
    try:
        return (await play(session, policy, seed=seed)).trajectories[0]
    finally:
        await session.close()


def told(made: Trajectory, turn: int) -> str:
    return made.turns[turn].observation[-1].text


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize("kind", CHORES)
async def test_bash_does_what_the_chore_says(kind: str) -> None:
    """The expert's command, run for real, leads to the tree that was worked out beforehand."""
    rng = random.Random(f"bash {kind}")
    done = 0
    while done < 6:
        tree = draw_tree(rng, rng.randint(8, 30))
        chore = CHORES[kind](rng, tree)
        if chore is None:
            continue
        bash = Shell(tree, timeout_s=10, max_letters=1000)
        said = await bash.run(chore.command)
        left = await bash.tree()
        await bash.close()
        assert left is not None
        assert same(left, chore.result), (chore.text, said)
        done += 1


@needs_sandbox
async def test_the_shell_says_what_commands_write_and_how_they_end() -> None:
    bash = Shell({"a/b.txt": "x\n"}, timeout_s=1.0, max_letters=100)
    assert await bash.run("ls -1 a; cat a/b.txt") == "b.txt\nx"
    assert await bash.run("true") == "(no output)"
    assert await bash.run("cat nothing") == (
        "cat: nothing: No such file or directory\n[exit code 1]"
    )
    assert await bash.run("echo 'é' \"$HOME\" >/dev/null; cd a; pwd | grep -c /a") == "1"
    assert await bash.run("pwd | grep -c '/top$'") == "1"  # each command begins at the top
    assert await bash.run("sleep 30") == "[stopped: timeout]"
    assert (await bash.run("yes")).endswith("[stopped: too much output]")
    assert "letters left out" in await bash.run("seq 150")
    assert await bash.run("(sleep 30; echo late) & echo now") == "now"
    assert await bash.run("exec >/dev/null 2>&1; sleep 30") == "[stopped: timeout]"
    assert await bash.run("exec >/dev/null 2>&1; exit 3") == "[exit code 3]"
    for command in ("echo a\0b", "true " + "x" * 140_000):
        with pytest.raises(ToolError, match="bytes; give at most 131,071"):
            await bash.run(command)
    assert await bash.tree() == {"a/b.txt": "x\n"}
    await bash.close()


@needs_sandbox
@pytest.mark.parametrize(
    "command",
    [
        "ln -s b.txt a/link",
        "ln -s a link",
        "touch $'bad\\xff'",
        "printf '\\xff' > bytes",
        "head -c 600000 /dev/zero > big",
        "mkfifo pipe",
        "for i in $(seq 2100); do : > f$i; done",
    ],
)
async def test_a_tree_of_more_than_small_files_of_text_is_never_right(command: str) -> None:
    bash = Shell({"a/b.txt": "x\n"}, timeout_s=10.0, max_letters=100)
    await bash.run(command)
    assert await bash.tree() is None
    await bash.close()


@needs_sandbox
async def test_a_file_that_may_not_be_read_does_not_break_the_session() -> None:
    bash = Shell({"b.txt": "x\n"}, timeout_s=10.0, max_letters=100)
    await bash.run("chmod 000 b.txt")
    assert await bash.tree() in (None, {"b.txt": "x\n"})  # root reads it all the same
    await bash.close()


@needs_sandbox
async def test_only_the_right_files_earn_the_reward() -> None:
    env = Files(kinds=["sweep"], max_chores=1)
    right = await played(env, shell("find . -type f -empty -delete"), DONE)
    assert (right.stop, right.ret) == (Stop.TERMINATED, 1.0)
    nothing = await played(env, DONE)
    assert (nothing.stop, nothing.ret) == (Stop.TERMINATED, 0.0)
    more = await played(env, shell("find . -type f -empty -delete; touch x"), DONE)
    assert more.ret == 0.0
    folder = await played(env, shell("find . -type f -empty -delete; mkdir x"), DONE)
    assert folder.ret == 1.0


@needs_sandbox
async def test_a_session_that_a_command_kills_begins_anew_with_the_first_files() -> None:
    env = Files(kinds=["sweep"], max_chores=1)
    sweep = "find . -type f -empty -delete"
    lost = await played(env, shell(sweep), shell("kill -9 $PPID"), DONE)
    assert "the next" in told(lost, 2)
    assert lost.ret == 0.0
    again = await played(env, shell("kill -9 $PPID"), shell(sweep), DONE)
    assert again.ret == 1.0


@needs_sandbox
async def test_talking_to_the_shell_is_no_command() -> None:
    made = await played(Files(turns=2), "find . -empty -delete", "done")
    assert (made.stop, made.ret) == (Stop.MAX_TURNS, 0.0)
    assert told(made, 1) == "Use the shell; call done when the files are as they should be."


async def test_without_a_sandbox_there_is_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.sandboxes.api import close_default

    close_default()
    monkeypatch.setenv("LUDUS_SANDBOX", "http://127.0.0.1:9")
    try:
        made = await played(Files(), shell("ls"), DONE)
    finally:
        close_default()
    assert made.stop in (Stop.REWARD_UNAVAILABLE, Stop.ENV_ERROR)
    assert made.verdict.reward is None
    assert made.exclude_from_baseline


def test_no_job_makes_a_new_folder_twice() -> None:
    """The first is still there when later chores have emptied it."""
    env = Files(kinds=["gather"], min_chores=3, max_chores=3)
    for index in range(60):
        made = [one.makes for one in env.tasks("test").job(env.tasks("test").at(index)).chores]
        assert len(set(made)) == 3


def test_a_job_tells_its_chores_in_order() -> None:
    chores = [drawn("sweep", TREE, ""), drawn("drop", TREE, "kettle")]
    assert Job(tree=TREE, chores=chores).text == (
        "1. Delete every empty file.\n2. Delete every file that contains the word kettle."
    )
