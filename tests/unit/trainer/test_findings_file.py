"""The file of findings, as other programs read it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ludus.findings import FILE, RunFinding, newest, read_findings, write_finding
from ludus.metrics import LineFile

OPENED = RunFinding(
    step=12,
    name="collapse",
    severity="error",
    state="broken",
    since=10,
    number=0.05,
    threshold=0.47,
    sentence="the reward fell from 0.94 to 0.05",
    cause="kl",
    remedy="--trainer.lr=1e-6",
    evidence=["reward/mean"],
)


def test_findings_are_read_as_they_were_written_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    closed = RunFinding(
        step=20, name="collapse", status="closed", severity="error", since=10, sentence=""
    )
    for finding in (OPENED, closed):
        write_finding(LineFile(tmp_path / FILE), finding)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"step": 21, "name": "kl", "sev')
    assert read_findings(tmp_path) == [OPENED, closed]
    assert newest(read_findings(tmp_path)) == {"collapse": closed}


def test_a_finding_that_opened_again_stands_behind_what_opened_meanwhile() -> None:
    changes = [
        msgspec.structs.replace(OPENED, name=name, step=step, since=since, status=status)
        for name, step, since, status in (
            ("kl", 10, 10, "open"),
            ("kl", 20, 10, "closed"),
            ("collapse", 30, 30, "open"),
            ("kl", 40, 40, "open"),
            ("collapse", 50, 30, "open"),
        )
    ]
    assert list(newest(changes)) == ["collapse", "kl"]


def test_a_run_without_the_file_has_no_findings(tmp_path: Path) -> None:
    assert read_findings(tmp_path) == []
