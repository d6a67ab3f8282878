"""The functions that need no setting up."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import ludus.sandboxes
from ludus.errors import ConfigError

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
]


def test_the_module_level_function_needs_no_setting_up() -> None:
    try:
        assert ludus.sandboxes.execute("print(6 * 7)").stdout == "42\n"
        assert ludus.sandboxes.grade("def f(): return 1", ["assert f() == 1"]).reward == 1.0
        with pytest.raises(ConfigError, match="network"):
            ludus.sandboxes.execute("", network=True)
    finally:
        ludus.sandboxes.close_default()


FORKED = """
import os
import subprocess
import sys
from ludus.sandboxes import execute
assert execute("print(1)").stdout == "1\\n"
child = os.fork()
for number in range(5):
    assert execute(f"print({number}, {child})").stdout == f"{number} {child}\\n"
if not child:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), execute("print(2)").stdout)
"""


def test_a_fork_has_a_sandbox_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "0 2\n\n", done.stderr


def test_limits_that_cannot_be_are_refused_and_not_replaced() -> None:
    with pytest.raises(ValueError, match="cpu_s must be above 0, got 0"):
        ludus.sandboxes.execute("print(1)", cpu_s=0)
    with pytest.raises(ValueError, match="timeout_s must be finite, got inf"):
        ludus.sandboxes.execute("while True: pass", timeout_s=float("inf"))


class Stuck(ludus.sandboxes.Sandbox):
    """Runs nothing, and cannot be closed."""

    tier = "stuck"

    async def run(self, program: ludus.sandboxes.Program) -> ludus.sandboxes.Execution:
        return ludus.sandboxes.Execution(status=ludus.sandboxes.ExecutionStatus.OK)

    async def close(self) -> None:
        raise OSError("it does not close")


def test_a_sandbox_that_could_not_be_closed_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ludus.sandboxes.close_default()
    monkeypatch.setenv("LUDUS_SANDBOX", f"{__name__}:Stuck")
    ludus.sandboxes.execute("")
    with pytest.raises(OSError, match="it does not close"):
        ludus.sandboxes.close_default()
    monkeypatch.delenv("LUDUS_SANDBOX")
    try:
        assert ludus.sandboxes.execute("print(6 * 7)").stdout == "42\n"
    finally:
        ludus.sandboxes.close_default()
