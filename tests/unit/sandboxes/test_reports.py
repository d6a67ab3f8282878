"""Reports of tests: what a line that was cut off leaves, and what texts become."""

import os

import pytest

from ludus.sandboxes.grading.calls import read_rows

FIRST = b'{"test": 0, "detail": "}}}"}\n'
SECOND = b'{"test": 1, "detail": "}}}"}\n'


@pytest.mark.parametrize("limit_bytes", range(len(FIRST + SECOND) + 2))
def test_a_report_cut_at_any_byte_has_the_whole_lines_before_the_cut(limit_bytes: int) -> None:
    report = os.memfd_create("report")
    try:
        os.write(report, FIRST + SECOND)
        rows = read_rows(report, limit_bytes)
    finally:
        os.close(report)
    count = (limit_bytes >= len(FIRST)) + (limit_bytes >= len(FIRST + SECOND))
    assert rows == [{"test": number, "detail": "}}}"} for number in range(count)]


def test_a_lone_surrogate_is_written_out_and_other_letters_stay() -> None:
    report = os.memfd_create("report")
    try:
        os.write(report, b'{"detail": "\\ud800 \\u00e9 \\ud83d\\ude00", "passed": false}\n')
        rows = read_rows(report, 1000)
    finally:
        os.close(report)
    assert rows == [{"detail": "\\ud800 \u00e9 \U0001f600", "passed": False}]
