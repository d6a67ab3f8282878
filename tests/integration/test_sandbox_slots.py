"""What a run in a slot does and says, limits and faults included; faults are made for real."""

# ruff: noqa: E501 - programs and values, one to a line
from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ludus.errors import ConfigError
from ludus.sandboxes import ExecutionStatus, Limits, SlotSandbox, UnknownLanguage, open_sandbox
from ludus.sandboxes.local import process_tree
from ludus.sandboxes.local.slots import Slot
from ludus.sandboxes.local.user_ids import user_ids
from ludus.sandboxes.open import examine

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=[
        "slots-root",
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("runsc", marks=[pytest.mark.docker, pytest.mark.slow]),
    ],
)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[SlotSandbox]:
    tier: str = request.param
    if tier in ("docker", "runsc"):
        request.getfixturevalue("docker_host")
    if tier == "runsc":
        if not shutil.which("runsc"):
            pytest.skip("needs gVisor (apt-get install runsc)")
        opened = await open_sandbox(runtime="runsc", size=2)
    else:
        opened = await open_sandbox(tier, size=2)
    assert isinstance(opened, SlotSandbox)
    yield opened
    await opened.close()


async def test_a_program_behaves_as_under_python(sandbox: SlotSandbox) -> None:
    code = "import sys\nprint(__name__, sys.argv[1:], input())\nprint('e', file=sys.stderr)\nopen('o', 'w').write('unclosed')\nsys.exit(3)"
    done = await sandbox.execute(code, argv=["a"], stdin="line\n", fetch_files=["o"])
    assert (done.status, done.exit_code) == (ExecutionStatus.ERROR, 3)
    assert done.stdout == "__main__ ['a'] line\n"
    assert done.stderr == "e\n"
    assert done.files == {"o": b"unclosed"}, "files left open are flushed at the end"


STREAMS = {
    "exit": "print(input())\nexit()\nprint('late')\n",
    "quit with a code": "print(input())\ntry:\n    quit(0)\nfinally:\n    pass\n",
    "new wrappers": "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer, encoding='utf-8')\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint(input())\n",
    "a detached output": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), write_through=True)\nprint(input())\n",
    "modes and names": "import sys\nstreams = [sys.stdin, sys.stdout, sys.stderr]\nassert [s.mode for s in streams] == ['r', 'w', 'w']\nassert [s.name for s in streams] == ['<stdin>', '<stdout>', '<stderr>']\nassert not sys.stdout.seekable() and sys.stdin is sys.__stdin__\nprint(input())\n",
}  # fmt: skip


@pytest.mark.parametrize("case", STREAMS)
async def test_standard_streams_and_exit_are_those_of_python(
    sandbox: SlotSandbox, case: str
) -> None:
    done = await sandbox.execute(STREAMS[case], stdin="in é\n")
    assert (done.stdout, done.exit_code) == ("in é\n", 0), done.stderr


async def test_a_traceback_shows_the_program_and_nothing_of_ours(sandbox: SlotSandbox) -> None:
    done = await sandbox.execute("def f():\n    return 1 / 0\n\nf()\n")
    assert done.stderr.count("File ") == 2
    assert 'File "main.py", line 2, in f\n    return 1 / 0' in done.stderr


UNUSUAL_ENDS = {
    "without standard error": ("sys.stderr = None; sys.exit('bye')", 1, "bye\n"),
    "standard error deleted": ("del sys.stderr; sys.exit('bye')", 1, "bye\n"),
    "standard error closed": ("sys.stderr.close(); sys.exit('bye')", 1, ""),
    "an exception without standard error": ("sys.stderr = None; 1 / 0", 1, ""),
    "an exception, standard error closed": ("sys.stderr.close(); 1 / 0", 1, ""),
    "a code without text": (
        "class Code:\n    def __str__(self): return 1 / 0\nsys.exit(Code())",
        1,
        "",
    ),
    "a code beyond the machine's integers": ("sys.exit(1 << 70)", 255, ""),
    "a hook for what is not caught": (
        "sys.excepthook = lambda kind, error, frames: print(kind.__name__, error, "
        "frames.tb_lineno, file=sys.stderr)\n1 / 0",
        1,
        "ZeroDivisionError division by zero 4\n",
    ),
    "a hook that ends the program": ("sys.excepthook = lambda *_: sys.exit(7)\n1 / 0", 7, ""),
    "a hook that fails": (
        "def hook(*_):\n    raise KeyError('k')\nsys.excepthook = hook\nraise ValueError(1)",
        1,
        "Error in sys.excepthook:\n"
        "Traceback (most recent call last):\n"
        "  File \"main.py\", line 4, in hook\n    raise KeyError('k')\nKeyError: 'k'\n"
        "\nOriginal exception was:\n"
        "Traceback (most recent call last):\n"
        '  File "main.py", line 6, in <module>\n    raise ValueError(1)\nValueError: 1\n',
    ),
    "a deleted hook": (
        "del sys.excepthook\nraise ValueError(1)",
        1,
        "sys.excepthook is missing\nTraceback (most recent call last):\n"
        '  File "main.py", line 4, in <module>\n    raise ValueError(1)\nValueError: 1\n',
    ),
    "an exception with a traceback of its own": (
        "class Own(Exception):\n    __traceback__ = property(lambda _: None)\nraise Own('x')",
        1,
        "Traceback (most recent call last):\n"
        "  File \"main.py\", line 5, in <module>\n    raise Own('x')\nOwn: x\n",
    ),
}


@pytest.mark.parametrize("name", UNUSUAL_ENDS)
async def test_a_program_ends_as_under_python_whatever_it_does_to_its_streams(
    sandbox: SlotSandbox, name: str
) -> None:
    end, code, told = UNUSUAL_ENDS[name]
    done = await sandbox.execute(f"import sys\nprint('answer')\n{end}\n")
    assert (done.exit_code, done.stdout, done.stderr) == (code, "answer\n", told)


PROGRAMS = {
    "ok": ("print(1)", Limits()),
    "error": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", Limits()),
    "timeout": ("import time; time.sleep(60)", Limits(timeout_s=0.3)),
    "oom": ("x = []\nwhile True: x.append(bytearray(1 << 20))", Limits(memory_bytes=64 << 20)),
    "output_limit": ("while True: print('x' * 1000)", Limits(output_bytes=50_000)),
}


@pytest.mark.parametrize("status", PROGRAMS)
async def test_each_status_is_told_from_the_others(sandbox: SlotSandbox, status: str) -> None:
    code, limits = PROGRAMS[status]
    assert (await sandbox.execute(code, limits=limits)).status == status


async def test_a_name_that_is_no_text_does_not_outlive_the_limit(sandbox: SlotSandbox) -> None:
    code = (
        r"import ctypes, time; ctypes.CDLL(None).prctl(15, b'\xff) R (', 0, 0, 0); time.sleep(60)"
    )
    async with asyncio.timeout(60):
        done = await sandbox.execute(code, limits=Limits(timeout_s=0.3))
    assert done.status is ExecutionStatus.TIMEOUT


async def test_orders_without_a_run_do_not_reach_the_next_one(sandbox: SlotSandbox) -> None:
    async with sandbox.pool().take() as (slot,):
        for order in (slot.kill_run, slot.interrupt_run, slot.hold_run):
            order()
    for _ in range(sandbox.pool().size + 1):
        assert (await sandbox.execute("print(1)", limits=Limits(timeout_s=20))).stdout == "1\n"


@pytest.mark.slow
async def test_a_kill_without_a_run_does_not_end_a_long_one_later(sandbox: SlotSandbox) -> None:
    pool = sandbox.pool()
    async with pool.take(pool.size) as slots:
        for slot in slots:
            slot.kill_run()
    done = await sandbox.execute("import time; time.sleep(6)", limits=Limits(timeout_s=20))
    assert done.ok
    async with pool.take(pool.size) as later:
        assert set(later) == set(slots), "no slot was given up"


async def test_a_slot_whose_waiting_child_was_killed_is_replaced(sandbox: SlotSandbox) -> None:
    if sandbox.tier != "slots-root":
        pytest.skip("what waits in a container is not told from what guards it")
    async with sandbox.pool().take() as (slot,):
        async with asyncio.timeout(60):
            while not slot.processes():  # on a busy machine it is still to be forked
                await asyncio.sleep(0.01)
            (waiting,) = slot.processes()
            os.kill(waiting, signal.SIGKILL)
            while slot.alive:
                await asyncio.sleep(0.01)
    assert (await sandbox.execute("print(1)")).stdout == "1\n"


async def test_cpu_time_of_all_processes_counts_together(sandbox: SlotSandbox) -> None:
    code = "import os\nos.fork()\nwhile True: pass"
    done = await sandbox.execute(code, limits=Limits(cpu_s=0.4, timeout_s=20))
    assert done.status is ExecutionStatus.TIMEOUT
    assert "CPU" in done.detail
    assert done.usage.wall_s < 15


async def test_output_far_beyond_a_pipe_arrives_whole(sandbox: SlotSandbox) -> None:
    done = await sandbox.execute("print('x' * 900_000, end='')")
    assert (done.status, len(done.stdout)) == (ExecutionStatus.OK, 900_000)


async def test_output_beyond_the_limit_is_cut_there(sandbox: SlotSandbox) -> None:
    done = await sandbox.execute("print('x' * 5000)", limits=Limits(output_bytes=1000))
    assert (done.status, len(done.stdout)) == (ExecutionStatus.OUTPUT_LIMIT, 1000)


async def test_a_background_child_that_holds_stdout_does_not_delay_the_answer(
    sandbox: SlotSandbox,
) -> None:
    code = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nprint('done')"
    )
    async with asyncio.timeout(120):
        done = await sandbox.execute(code)
    assert done.stdout == "done\n"


async def test_nothing_of_one_run_is_left_for_the_next(sandbox: SlotSandbox) -> None:
    for _ in range(2):
        dirty = "import os, fcntl\nopen('f', 'w').write('x')\nos.makedirs('/tmp/d/e')\nos.chmod('/tmp/d', 0)\nos.set_blocking(1, False)"
        assert (await sandbox.execute(dirty)).ok
    look = "import os\nprint(os.listdir('/sandbox'), os.get_blocking(1), oct(os.stat('/sandbox').st_mode))"
    for _ in range(2):
        assert (await sandbox.execute(look)).stdout == "[] True 0o41777\n"


async def test_randomness_differs_between_runs(sandbox: SlotSandbox) -> None:
    for module in (
        "import random; print(random.random())",
        "import numpy; print(numpy.random.random())",
    ):
        assert len({(await sandbox.execute(module)).stdout for _ in range(4)}) == 4, module


ODD_FILES = """
import os, socket
os.mkfifo('fifo'); os.symlink('/etc/passwd', 'link'); os.mkdir('dir'); os.symlink('/etc', 'dirlink')
with open('sparse', 'wb') as f: f.truncate(1 << 40 if False else 1 << 25)
s = socket.socket(socket.AF_UNIX); s.bind('sock')
os.symlink('/dev/zero', 'zero'); open('good', 'wb').write(b'\\xff\\0')
os.mkdir('closed'); open('closed/f', 'w').write('x'); os.chmod('closed', 0)
"""


async def test_only_regular_files_are_fetched(sandbox: SlotSandbox) -> None:
    asked = [
        "fifo",
        "link",
        "dir",
        "dirlink/passwd",
        "sparse",
        "sock",
        "zero",
        "good",
        "closed/f",
        "missing",
    ]
    done = await sandbox.execute(ODD_FILES, fetch_files=asked)
    assert done.status is ExecutionStatus.OK, done.stderr
    assert done.files == {"good": b"\xff\0"}
    assert sorted(done.refused) == sorted(set(asked) - {"good"})


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/x",
        "../x",
        "a/../../x",
        "a//b",
        "./a",
        "a\0b",
        "a\nb",
        "\ud800",
        "x" * 300,
        "a/" * 600 + "b",
    ],
)
async def test_a_path_that_leaves_or_cannot_be_is_refused_both_ways(
    sandbox: SlotSandbox, path: str
) -> None:
    with pytest.raises(ConfigError, match="file path"):
        await sandbox.execute("", files={path: b""})
    with pytest.raises(ConfigError, match="file path"):
        await sandbox.execute("", fetch_files=[path])


async def test_uploaded_files_and_modules_are_there(sandbox: SlotSandbox) -> None:
    files = {
        "data/in.txt": "hello",
        "helper.py": "def up(s): return s.upper()",
        "big": bytes(1 << 20),
    }
    code = "import os, helper\nprint(helper.up(open('data/in.txt').read()), os.path.getsize('big'))"
    assert (await sandbox.execute(code, files=files)).stdout == "HELLO 1048576\n"


LANGUAGES = {
    "bash": "read x; echo got $x >/dev/stderr; cat /dev/null; exit 4",
    "c": '#include <stdio.h>\nint main(void){char b[9]; scanf("%8s", b); fprintf(stderr, "got %s\\n", b); return 4;}',
    "cpp": '#include <iostream>\nint main(){std::string s; std::cin >> s; std::cerr << "got " << s << "\\n"; return 4;}',
}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_other_languages_run(sandbox: SlotSandbox, language: str) -> None:
    done = await sandbox.execute(LANGUAGES[language], language, stdin="in\n")
    if "No such file" in done.stderr or done.exit_code == 127:
        pytest.skip(f"no tools for {language} here")
    assert (done.exit_code, done.stderr) == (4, "got in\n")


async def test_a_compiler_cannot_read_or_write_outside(
    sandbox: SlotSandbox, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    witness.write_text("secret")
    tmp_path.chmod(0o755)
    attempts = [
        f'#include "{witness}"\nint main(){{}}',
        f'__asm__(".incbin \\"{witness}\\"");\nint main(){{}}',
    ]
    for attempt in attempts:
        done = await sandbox.execute(attempt, "c")
        assert not done.compiled
        assert "secret" not in done.stderr + done.stdout


async def test_an_uploaded_file_does_not_pass_for_the_compiler_s_product(
    sandbox: SlotSandbox,
) -> None:
    files = {"program": "#!/bin/sh\necho planted\n"}
    done = await sandbox.execute("int main(void) { not C", "c", files=files)
    assert not done.compiled
    assert "planted" not in done.stdout


async def test_an_unknown_language_names_the_near_miss(sandbox: SlotSandbox) -> None:
    with pytest.raises(UnknownLanguage, match="did you mean 'python'"):
        await sandbox.execute("", "pyton")


async def test_a_killed_slot_is_replaced_and_the_run_tried_again(sandbox: SlotSandbox) -> None:
    await sandbox.execute("pass")  # so that there is a slot
    running = asyncio.ensure_future(
        sandbox.execute("import time; time.sleep(0.5); print('survived')")
    )
    going = list[Slot]()
    async with asyncio.timeout(60):
        while not going:
            await asyncio.sleep(0.01)
            # The one that runs it: the run is tried again once, and another that waits would end
            # a moment after it was taken for that.
            going = [slot for slot in sandbox.pool()._of if slot._waiter]  # pyright: ignore[reportPrivateUsage]
    for slot in going:
        slot._supervisor.end()  # pyright: ignore[reportPrivateUsage]
    assert (await running).stdout == "survived\n"


async def test_a_cancelled_run_frees_its_place(sandbox: SlotSandbox) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sandbox.execute("import time; time.sleep(60)"), 0.2)
    assert (await sandbox.execute("print('free')")).stdout == "free\n"


DRIVER = """
import asyncio, os, signal
from ludus.sandboxes import open_sandbox
async def main():
    sandbox = await open_sandbox('slots-root', size=1)
    asyncio.ensure_future(sandbox.execute('import time; time.sleep(100)'))
    await asyncio.sleep(0.3)
    print(os.getpid(), *sandbox.pool()._free or sandbox.pool()._of, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_slots_die_with_their_driver_and_leave_nothing_that_stays() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    pid = int((driver.communicate(timeout=30)[0] or "0").split()[0])
    assert driver.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while (left := _supervisors_of(pid)) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert left == []
    again = await open_sandbox("slots-root", size=1)  # removes the leftovers of dead drivers
    await again.close()
    assert list(Path("/sys/fs/cgroup").glob(f"*/**/ludus-{pid}-*")) == []


def _supervisors_of(pid: int) -> list[str]:
    """Processes in the control group of that driver."""
    procs = Path("/sys/fs/cgroup").glob(f"pids/**/ludus-{pid}-*/*/cgroup.procs")
    return [line for path in procs for line in path.read_text().split()]


async def test_five_hundred_runs_leave_descriptors_and_memory_flat(sandbox: SlotSandbox) -> None:
    async def some(count: int) -> None:
        for _ in range(count):
            assert (await sandbox.execute("print('x')")).ok

    await sandbox.pool().warm()
    await some(50)
    before = len(os.listdir("/proc/self/fd")), _session_process()
    await asyncio.gather(some(250), some(250))
    assert len(os.listdir("/proc/self/fd")) <= before[0]
    assert _session_process() - before[1] < 4 << 20


def _session_process() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("tier", ["slots-root", "slots-landlock"])
async def test_a_slot_whose_guardian_is_killed_while_it_starts_ends_too(tier: str) -> None:
    if not (await examine(tier)).holds:
        pytest.skip(f"{tier} does not hold here")
    sandbox = SlotSandbox(tier, size=1)
    others = set(process_tree.children_of(os.getpid()))
    asked = asyncio.ensure_future(sandbox.execute("print(1)"))
    slots: list[int] = []
    while not slots:
        await asyncio.sleep(0)
        for supervisor in set(process_tree.children_of(os.getpid())) - others:
            slots = process_tree.children_of(supervisor)
            if slots:
                os.kill(supervisor, signal.SIGKILL)
    try:
        async with asyncio.timeout(60):
            while _lives(slots[0]):
                await asyncio.sleep(0.01)
            assert (await asked).stdout == "1\n", "another slot has been started"
    finally:
        await sandbox.close()


def _lives(pid: int) -> bool:
    """Whether it is there, and no zombie that its new parent has not looked at yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


async def test_a_slot_whose_folder_cannot_be_made_keeps_neither_user_id_nor_control_group() -> None:
    sandbox = SlotSandbox("slots-landlock", size=2)  # its folders are made whether it holds or not
    ids, free = user_ids(), len(user_ids()._free)
    assert sandbox._work is not None
    for number in range(2):
        (sandbox._work / f"slot-{sandbox._first + number}").write_text("")  # in the way
    try:
        for _ in range(3):
            assert "cannot be made" in (await sandbox.execute("print(1)")).detail
        assert len(ids._free) == free
        if sandbox.groups is not None:
            for folder in sandbox.groups._places.folders():
                assert not [inner for inner in folder.iterdir() if inner.is_dir()]
    finally:
        await sandbox.close()


@pytest.mark.parametrize("tier", ["slots-root", "slots-landlock"])
async def test_a_tree_deeper_than_any_path_is_removed(tier: str) -> None:
    deep = "import os\nfor _ in range(300):\n    os.mkdir('d' * 20); os.chdir('d' * 20)"
    sandbox = SlotSandbox(tier, size=1)
    try:
        for _ in range(2):
            assert (await sandbox.execute(deep)).ok
            assert (await sandbox.execute("import os; print(os.listdir())")).stdout == "[]\n"
    finally:
        await sandbox.close()


@pytest.mark.parametrize("tier", ["slots-root", "slots-landlock"])
async def test_a_tier_in_which_a_process_outlives_its_run_is_refused(
    tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (await examine(tier)).holds:
        pytest.skip(f"{tier} does not hold here")
    # No process of a run lives on here, so the program gives out the slot as the one it left.
    survivor = "import os\nprint(os.getppid() or 1)"
    monkeypatch.setattr("ludus.sandboxes.open._LEFTOVER_PROGRAM", survivor)
    (problem,) = (await examine(tier)).problems
    assert "does not start clean" in problem
    assert "lives" in problem


async def test_a_tier_whose_programs_cannot_read_python_is_refused() -> None:
    folders = [Path(sys.base_prefix), *Path(sys.base_prefix).parents]
    closed = any(not folder.stat().st_mode & 1 for folder in folders)
    found = await examine("slots-landlock")
    assert found.holds is not closed, found
    if closed:
        assert "closed to other users" in found.problems[0]
