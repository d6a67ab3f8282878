"""The route `/submit`: judges a completion by the stdin-and-stdout tests of a CommonOJ row.

The expected outputs stay on the server; the program gets inputs alone. A fault of the sandbox ends
the request with a status after which clients try again, and never counts as a failed test.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import msgspec

from ludus.wire.faults import Refused

from ..languages import UnknownLanguage, find_language
from ..over_http.runner import Runner
from .custom_extraction import extract_custom
from .extraction import TYPES, blocks_of, choose
from .fusion_wire import (
    SANDBOX_ERROR,
    SUCCESS,
    RunCodeBody,
    RunCodeReply,
    SubmitBody,
    SubmitReply,
    TestCase,
)

DATASET_TYPE = "CommonOJDataset"
COMPILE_TIMEOUT_S = 10.0
RUN_TIMEOUT_S = {"cpp": 10.0, "go": 10.0, "java": 10.0}
SCRIPT_TIMEOUT_S = 20.0
"""The protocol's time limit for other languages, in seconds, where a request gives none."""

SHOWN = 1000
"""The most characters of each text of a test in the reply, unless `return_full_case` is set."""

_RELATIVE = 1e-5
_LEAST = 1e-10

RunCode = Callable[[RunCodeBody], Awaitable[RunCodeReply]]


class OjCase(msgspec.Struct, frozen=True):
    """A test of a CommonOJ row."""

    input: dict[str, str]
    output: dict[str, str]


async def judge(runner: Runner, body: SubmitBody, run_code: RunCode) -> SubmitReply:
    """Judge a completion.

    Raises:
        Refused: the row, language or extraction logic cannot be used (422), or the sandbox failed
            (503).
        QueueFull: no slot was free in time.
    """
    language = body.config.language
    if not language:
        raise Refused("config.language must be given for CommonOJDataset", "invalid")
    try:
        find_language(language)
    except UnknownLanguage as error:
        raise Refused(str(error), "unknown_language") from error
    cases = cases_of(body)
    blocks = blocks_of(body.completion, language)
    if logic := body.config.custom_extract_logic:
        patience_s = runner.bounds.queue_timeout_s
        blocks += await extract_custom(runner, body.completion, logic, patience_s=patience_s)
    block = choose(blocks, language)
    code = block.code if block else ""
    program = RunCodeBody(code=code, language=language)
    outcomes = await _judge_cases(runner, body, program, cases, run_code)
    return SubmitReply(
        id=body.id,
        accepted=all(outcome.passed for outcome in outcomes),
        extracted_code=code,
        full_code=code,
        tests=outcomes,
        extracted_type=TYPES.get(block.priority) if block else "empty",
    )


def cases_of(body: SubmitBody) -> list[OjCase]:
    """Return the tests of the row in the request.

    Raises:
        Refused: the row is of another type, or holds no tests.
    """
    kind = body.config.dataset_type
    if kind not in (None, DATASET_TYPE):
        raise Refused(f"dataset_type {kind!r} is not offered here; {DATASET_TYPE} is", "invalid")
    row = body.config.provided_data
    if not isinstance(row, dict) or "test" not in row:
        raise Refused(
            f"dataset {body.dataset!r} is not stored here; give its row as config.provided_data, "
            "with 'test': [{'input': {'stdin': ...}, 'output': {'stdout': ...}}]",
            "invalid",
        )
    try:
        test = row["test"]
        cases = (
            msgspec.json.decode(test, type=list[OjCase])
            if isinstance(test, str)
            else msgspec.convert(test, list[OjCase])
        )
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(f"config.provided_data['test']: {error}", "invalid") from None
    if not cases or not all("stdin" in case.input and "stdout" in case.output for case in cases):
        raise Refused(
            "every test needs input.stdin and output.stdout, and one is needed", "invalid"
        )
    return cases


async def _judge_cases(
    runner: Runner,
    body: SubmitBody,
    program: RunCodeBody,
    cases: list[OjCase],
    run_code: RunCode,
) -> list[TestCase]:
    """Judge the cases, `runner.slots` at a time, up to the first failure in order."""
    config = body.config
    run_s = config.run_timeout or RUN_TIMEOUT_S.get(program.language, SCRIPT_TIMEOUT_S)
    compile_s = config.compile_timeout or COMPILE_TIMEOUT_S
    runner.check_grading_time(run_s * len(cases))
    stop_early = not config.extra.get("run_all_cases", False)
    full_case = bool(config.extra.get("return_full_case", False))

    async def judge_case(case: OjCase) -> TestCase:
        request = msgspec.structs.replace(
            program,
            stdin=case.input["stdin"],
            run_timeout=run_s,
            compile_timeout=compile_s,
        )
        return judged(case, await run_code(request), full_case=full_case)

    outcomes: list[TestCase] = []
    for start in range(0, len(cases), runner.slots):
        wave = cases[start : start + runner.slots]
        for outcome in await asyncio.gather(*(judge_case(case) for case in wave)):
            if outcome.exec_info.status == SANDBOX_ERROR:
                raise Refused(outcome.exec_info.message, "sandbox_failed")
            outcomes.append(outcome)
            if stop_early and not outcome.passed:
                return outcomes
    return outcomes


def judged(case: OjCase, reply: RunCodeReply, *, full_case: bool) -> TestCase:
    """Judge the output of a single test."""
    output = (reply.run_result.stdout or "") if reply.run_result else ""
    passed = reply.status == SUCCESS and same_lines(output, case.output["stdout"])
    half = (SHOWN - 3) // 2

    def shown(streams: dict[str, str]) -> dict[str, str]:
        # Long texts are shortened to both ends.
        return {
            name: text if full_case or len(text) <= SHOWN else f"{text[:half]}...{text[-half:]}"
            for name, text in streams.items()
        }

    test_info = {"input": shown(case.input), "output": shown(case.output)}
    return TestCase(passed=passed, exec_info=reply, test_info=test_info)


def same_lines(output: str, expected: str) -> bool:
    r"""Return whether two outputs are the same to CommonOJ.

    They are compared line by line, ignoring case and space at the ends of lines; numbers may differ
    from the expected number by a relative 1e-5.

    >>> same_lines("YES \n0.333334", "yes\n0.333333")
    True
    """
    output_lines, expected_lines = output.strip().split("\n"), expected.strip().split("\n")
    return len(output_lines) == len(expected_lines) and all(
        map(_same_line, output_lines, expected_lines)
    )


def _same_line(output_line: str, expected_line: str) -> bool:
    output_line, expected_line = output_line.strip().lower(), expected_line.strip().lower()
    if output_line == expected_line:
        return True
    try:
        value, expected = float(output_line), float(expected_line)
    except ValueError:
        return False
    distance = abs(value - expected)
    return math.isfinite(distance) and distance / max(abs(expected), _LEAST) < _RELATIVE
