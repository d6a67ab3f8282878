"""`ludus/repair-v0`: files, a shell, hidden tests, and what an agent may try instead."""

from __future__ import annotations

import contextlib
from typing import Any

import psutil
import pytest

import ludus
from ludus.envs.families.repair import CodeRepair
from ludus.envs.gym import GymEnv
from ludus.errors import RewardUnavailable
from ludus.messages import ToolCall, assistant

pytestmark = pytest.mark.usefixtures("a_sandbox")


class Bench:
    """An episode, and its tools as methods."""

    def __init__(self, task: str = "train/0", **options: Any) -> None:
        self.gym: GymEnv = ludus.make("ludus/repair-v0", **options)
        self.opening = self.begin(task)

    def begin(self, task: str) -> str:
        return str(self.gym.reset(options={"task": task})[0])

    @property
    def env(self) -> CodeRepair:
        env = self.gym.session.env  # type: ignore[attr-defined]
        assert isinstance(env, CodeRepair)
        return env

    @property
    def broken(self) -> str:
        """The file with the mistake."""
        (fault,) = self.env.repair.faults
        return fault.function.file

    def call(self, name: str, **arguments: str) -> str:
        shown = self.gym.step(assistant("", [ToolCall(name=name, arguments=arguments)]))[0]
        assert isinstance(shown, list)
        return shown[0].text

    def repair_it(self) -> None:
        self.call("write_file", path=self.broken, content=self.env.repair.right[self.broken])

    def submit(self) -> float:
        _, reward, terminated, _, _ = self.gym.step(assistant("", [ToolCall(name="submit")]))
        assert terminated
        return reward


@pytest.mark.slow
def test_the_expert_is_right_on_every_difficulty_and_doing_nothing_is_not() -> None:
    harder = {"min_functions": 6, "max_functions": 8, "faults": 3}
    for bench in (Bench(), Bench("train/0", **harder)):
        for split in ("train", "test"):
            for index in range(5):
                bench.begin(f"{split}/{index}")
                reward, over = 0.0, False
                while not over:
                    _, reward, over, late, _ = bench.gym.step(bench.env.demonstrate())
                    assert not late
                assert reward == 1.0
                bench.begin(f"{split}/{index}")
                assert bench.submit() == 0.0
        bench.gym.close()


def test_a_command_reads_no_package_that_is_installed_beside_the_interpreter() -> None:
    """Else it reads there, in ludus, the functions of its task as they were before they broke."""
    bench = Bench()
    folder = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    # its names may be listed where a tier hides no names
    assert bench.call("run", command=f"cat {folder}/*/*.py 2>/dev/null | wc -c") == "0"
    bench.gym.close()


def test_files_are_listed_read_and_written() -> None:
    bench = Bench()
    listed = bench.call("list_files")
    assert listed.split()[::2] == list(bench.env.repair.files)
    assert bench.call("read_file", path=bench.broken) == bench.env.repair.files[bench.broken]
    assert bench.call("write_file", path="notes/a.txt", content="ä\n") == "notes/a.txt written"
    assert bench.call("run", command="cat notes/a.txt; echo done >&2") == "ä\ndone"
    assert "notes/a.txt 3" in bench.call("list_files")
    bench.gym.close()


def test_the_shell_keeps_files_but_no_variables_and_tells_how_it_ended() -> None:
    bench = Bench()
    assert bench.call("run", command="X=1; echo $X > x; cd /") == "(no output)"
    assert bench.call("run", command="echo $X$(cat x)") == "1"
    assert bench.call("run", command="exit 3") == "[exit code 3]"
    assert bench.call("run", command="no-such-command").endswith("[exit code 127]")
    hasty = Bench(run_timeout_s=0.5)  # only for a command that never ends: the others may be slow
    assert hasty.call("run", command="echo a; sleep 30") == "a\n[stopped after 0.5 s]"
    hasty.gym.close()
    assert bench.call("run", command="python3 -c 'print(6 * 7)'") == "42"
    assert bench.call("run", command="echo 'print(1' > p.py; python p.py").endswith("[exit code 1]")
    bench.gym.close()


def test_repairs_by_shell_count_as_those_by_the_tool() -> None:
    bench = Bench()
    right = bench.env.repair.right[bench.broken]
    bench.call("run", command=f"cat > {bench.broken} <<'END'\n{right}END\n")
    assert bench.submit() == 1.0
    bench.gym.close()


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "x\n", "no/such"])
def test_paths_outside_are_refused(path: str) -> None:
    bench = Bench()
    assert bench.call("read_file", path=path).startswith("read_file: ")
    if path != "no/such":
        assert bench.call("write_file", path=path, content="x").startswith("write_file: ")
    bench.gym.close()


SABOTAGE = {
    "deleted": "rm {file}",
    "a folder": "rm {file}; mkdir {file}",
    "a pipe": "rm {file}; mkfifo {file}",
    "a link to a device": "ln -sf /dev/zero {file}",
    "a link to a file outside": "ln -sf /etc/passwd {file}",
    "a sparse file": "truncate -s 10G {file}",
    "empty": ": > {file}",
    "an endless program": "echo 'while True: pass' > {file}",
    "exits": "echo 'import os; os._exit(0)' > {file}",
    "not Python": "head -c 1000 /dev/urandom > {file}",
    "everything equal": "echo 'class A:\n def __eq__(s, o): return True\n"
    "def __getattr__(n): return lambda *a: A()' > {file}",
    "the interpreter stopped": "kill -STOP $PPID",
    "the interpreter killed": "kill -9 $PPID",
    "everything killed": "kill -9 -1",
}


@pytest.mark.parametrize("name", [name for name in SABOTAGE if "stopped" not in name])
def test_sabotage_earns_nothing_and_is_never_excused(name: str) -> None:
    bench = Bench(timeout_s=2)
    bench.call("run", command=SABOTAGE[name].format(file=bench.broken))
    assert bench.submit() == 0.0
    bench.gym.close()


@pytest.mark.slow
def test_stopping_the_interpreter_earns_nothing_and_is_never_excused() -> None:
    bench = Bench(run_timeout_s=1.0)
    bench.call("run", command=SABOTAGE["the interpreter stopped"])
    assert bench.submit() == 0.0
    bench.gym.close()


def test_a_session_that_ended_begins_anew_with_the_files_as_they_were() -> None:
    bench = Bench()
    bench.repair_it()
    assert "session" in bench.call("run", command="kill -9 $PPID")
    assert bench.call("read_file", path=bench.broken) == bench.env.repair.files[bench.broken]
    bench.repair_it()
    assert bench.submit() == 1.0
    bench.gym.close()


def test_a_sandbox_killed_in_the_middle_makes_the_episode_unusable() -> None:
    bench = Bench()
    bench.repair_it()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    with pytest.raises(RewardUnavailable, match="unavailable"):
        bench.submit()
    bench.begin("train/0")
    bench.repair_it()
    assert bench.submit() == 1.0
    bench.gym.close()


def test_breaking_another_function_costs_the_reward() -> None:
    bench = Bench("train/3", min_functions=6, max_functions=6)
    bench.repair_it()
    other = next(file for file in bench.env.repair.files if file != bench.broken)
    bench.call("write_file", path=other, content="pass\n")
    assert bench.submit() == 0.0
    bench.gym.close()


def test_partial_credit_is_the_share_of_failing_tests_repaired_less_what_is_newly_broken() -> None:
    options: dict[str, Any] = {
        "partial": True, "min_functions": 6, "max_functions": 6, "faults": 2,
    }  # fmt: skip
    bench = Bench("train/4", **options)
    assert bench.submit() == 0.0
    bench.begin("train/4")
    one, other = bench.env.repair.faults
    assert one.function.file != other.function.file
    file = one.function.file
    bench.call("write_file", path=file, content=bench.env.repair.right[file])
    share = len(one.failing) / (len(one.failing) + len(other.failing))
    assert bench.submit() == pytest.approx(share)
    bench.begin("train/4")
    for name in bench.env.repair.files:
        bench.call("write_file", path=name, content="")
    assert bench.submit() == 0.0
    bench.gym.close()


def test_reports_say_as_much_as_asked() -> None:
    call = Bench(report="call")
    (fault,) = call.env.repair.faults
    shown = fault.failing[0]
    assert f"Wrong: {fault.function.calls[shown]} should return" in call.opening
    function = Bench(report="function").opening
    assert f"Broken: {fault.function.name}" in function
    assert "Wrong" not in function
    nothing = Bench(report="nothing").opening
    assert fault.function.name not in nothing
    assert nothing.startswith("The files integers.py, text.py hold 2 small functions.")


def test_special_casing_the_reported_call_is_not_enough() -> None:
    bench = Bench()
    (fault,) = bench.env.repair.faults
    name, shown = fault.function.name, fault.failing[0]
    call, result = fault.function.calls[shown], fault.function.results[shown]
    arguments = call.removeprefix(name)
    patched = (
        f"{bench.env.repair.files[bench.broken]}\n_broken = {name}\n"
        f"def {name}(*a):\n    return {result} if a == ({arguments[1:-1]},) else _broken(*a)\n"
    )
    bench.call("write_file", path=bench.broken, content=patched)
    assert bench.submit() == 0.0
    bench.gym.close()


def test_hidden_tests_are_not_in_the_session() -> None:
    bench = Bench(report="nothing")
    seen = bench.call(
        "run",
        command="env; ls -a / .; cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' ' '",
    )
    assert "assert" not in seen
    bench.gym.close()


def test_an_answer_in_text_hands_in_what_is_there() -> None:
    bench = Bench()
    bench.repair_it()
    assert bench.gym.step("Done.")[1:3] == (1.0, True)
    bench.gym.close()


def test_turns_are_bounded() -> None:
    bench = Bench(turns=1)
    step = bench.gym.step(assistant("", [ToolCall(name="list_files")]))
    assert step[1:4] == (0.0, False, True)
    bench.gym.close()
