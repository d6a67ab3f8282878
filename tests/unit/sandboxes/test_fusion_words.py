"""What becomes of an outcome in SandboxFusion's words, and of its words in ours."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from ludus.errors import ConfigError
from ludus.sandboxes import Execution, ExecutionStatus, Limits, Program, UnknownLanguage, Usage
from ludus.sandboxes.fusion.fusion_sandbox import execution_of, request_of
from ludus.sandboxes.fusion.fusion_wire import RunCodeReply, read_files, run_code_reply
from ludus.sandboxes.fusion.routes import same_lines
from ludus.wire.faults import Refused

PROGRAM = Program(code="", limits=Limits(output_bytes=100))


def run(status: ExecutionStatus, code: int | None = None, **more: Any) -> Execution:
    return Execution(
        status=status, exit_code=code, stdout="out", stderr="err", usage=Usage(wall_s=2), **more
    )


@pytest.mark.parametrize(
    ("execution", "status", "run_status", "return_code"),
    [
        (run(ExecutionStatus.OK, 0), "Success", "Finished", 0),
        (run(ExecutionStatus.ERROR, 3), "Failed", "Finished", 3),
        (run(ExecutionStatus.ERROR, -11), "Failed", "Finished", -11),
        (run(ExecutionStatus.ERROR, detail="too many processes"), "Failed", "Finished", -9),
        (run(ExecutionStatus.TIMEOUT), "Failed", "TimeLimitExceeded", None),
        (run(ExecutionStatus.OOM), "Failed", "Finished", -9),
        (run(ExecutionStatus.OUTPUT_LIMIT), "Failed", "Finished", -9),
    ],
)
def test_what_a_program_did_is_success_or_failed(
    execution: Execution, status: str, run_status: str, return_code: int | None
) -> None:
    reply = run_code_reply(execution, compiles=False)
    assert reply.run_result is not None
    assert reply.compile_result is None
    assert (reply.status, reply.run_result.status) == (status, run_status)
    assert reply.run_result.return_code == return_code
    assert (reply.run_result.stdout, reply.run_result.execution_time) == ("out", 2)


def test_an_infra_error_is_sandbox_error_and_never_failed() -> None:
    lost = run(ExecutionStatus.INFRA_ERROR, detail="the slot ended")
    reply = run_code_reply(lost, compiles=False)
    assert reply.status == "SandboxError"
    assert (reply.run_result, reply.compile_result) == (None, None)
    assert "the slot ended" in reply.message


def test_a_refused_program_has_a_compile_result_alone() -> None:
    refused = run(ExecutionStatus.ERROR, 1, compiled=False)
    reply = run_code_reply(refused, compiles=True)
    assert reply.status == "Failed"
    assert reply.run_result is None
    assert reply.compile_result is not None
    assert (reply.compile_result.status, reply.compile_result.return_code) == ("Finished", 1)


def test_a_compiler_that_takes_too_long_is_time_limit_exceeded() -> None:
    late = run(ExecutionStatus.TIMEOUT, compiled=False)
    reply = run_code_reply(late, compiles=True)
    assert reply.compile_result is not None
    assert (reply.status, reply.compile_result.status) == ("Failed", "TimeLimitExceeded")


def test_every_field_is_sent_for_clients_index_them() -> None:
    sent = msgspec.json.decode(
        msgspec.json.encode(run_code_reply(run(ExecutionStatus.OK, 0), compiles=False))
    )
    assert set(sent) == {
        *("status", "message", "compile_result"),
        *("run_result", "executor_pod_name", "files"),
    }
    assert set(sent["run_result"]) == {
        *("status", "execution_time", "return_code", "stdout", "stderr")
    }


def test_files_are_base64_and_some_are_left_out_by_name() -> None:
    encoded = base64.b64encode(b"\xff").decode()
    files = {"a": encoded, "b": None, "x/IGNORE_THIS_FILE": encoded}
    assert read_files(files) == {"a": b"\xff"}
    with pytest.raises(Refused, match="not base64"):
        read_files({"a": "=a"})


# --- a SandboxFusion server's answers in our words ---------------------------------------------


def reply(status: str, run: dict[str, Any] | None, compiled: dict[str, Any] | None = None) -> Any:
    body = {"status": status, "message": "", "run_result": run, "compile_result": compiled}
    return msgspec.convert(body, RunCodeReply)


def result(status: str = "Finished", code: int | None = 0, **more: Any) -> dict[str, Any]:
    return {"status": status, "return_code": code, "stdout": "", "stderr": "", **more}


@pytest.mark.parametrize(
    ("answer", "status", "exit_code"),
    [
        (reply("Success", result()), ExecutionStatus.OK, 0),
        (reply("Failed", result(code=2)), ExecutionStatus.ERROR, 2),
        (reply("Failed", result("TimeLimitExceeded", None)), ExecutionStatus.TIMEOUT, None),
        (
            reply("Failed", result(code=1, stderr="Traceback\nMemoryError\n")),
            ExecutionStatus.OOM,
            None,
        ),
        (reply("Success", result(stdout="x" * 101)), ExecutionStatus.OUTPUT_LIMIT, None),
        (reply("Success", None), ExecutionStatus.INFRA_ERROR, None),
        (reply("SandboxError", result("Error", None)), ExecutionStatus.INFRA_ERROR, None),
    ],
)
def test_its_words_in_ours(answer: Any, status: ExecutionStatus, exit_code: int | None) -> None:
    execution = execution_of(answer, PROGRAM)
    assert (execution.status, execution.exit_code) == (status, exit_code)
    assert len(execution.stdout) <= 100


def test_a_compiler_over_there_that_refuses_is_the_programs_fault() -> None:
    answer = reply("Failed", None, result(code=1, stderr="expected ';'"))
    execution = execution_of(answer, PROGRAM)
    assert (execution.status, execution.compiled) == (ExecutionStatus.ERROR, False)
    assert execution.stderr == "expected ';'"


def test_a_file_it_did_not_send_is_named() -> None:
    program = Program(code="", fetch_files=["out.txt"])
    execution = execution_of(reply("Success", result()), program)
    assert list(execution.refused) == ["out.txt"]


def test_what_its_protocol_cannot_carry_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="does not run 'c'"):
        request_of(Program(code="x", language="c"))
    with pytest.raises(ConfigError, match="takes text as stdin"):
        request_of(Program(code="x", stdin=b"\xff"))
    with pytest.raises(UnknownLanguage):
        request_of(Program(code="x", language="cobol"))


# --- CommonOJ's comparison ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("YES\n", "yes", True),
        (" 1 \n2\n", "1\n 2", True),
        ("1\n\n2", "1\n2", False),
        ("1 2", "1  2", False),
        ("0.333334", "0.333333", True),  # 3e-6 of it
        ("0.33334", "0.33333", False),  # 3e-5 of it
        ("1e-16", "0", True),  # 1e-16 / 1e-10 = 1e-6
        ("1e-12", "0", False),  # 1e-12 / 1e-10 = 1e-2
        ("nan", "nan", True),  # the same text
        ("nan", "1", False),
        ("inf", "1", False),
        ("-inf", "inf", False),
        ("", "", True),
        ("1" * 5000, "1" * 5000 + "2", False),
    ],
)
def test_lines_are_compared_as_common_oj_does(output: str, expected: str, same: bool) -> None:
    assert same_lines(output, expected) is same
