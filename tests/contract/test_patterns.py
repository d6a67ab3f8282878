"""No pattern of the package is kept busy by a text that repeats what the pattern repeats.
`benchmarks/patterns.py` draws such texts; with `--count` it draws more of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PATTERNS = Path(__file__).parents[2] / "benchmarks" / "patterns.py"


def _searched(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", *command], capture_output=True, text=True, timeout=300
    )


def test_every_pattern_ends_on_texts_of_repeated_pieces() -> None:
    run = _searched(str(PATTERNS), "ludus", "--count", "8", "--seed", "1")
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_pattern_with_two_ways_through_a_text_is_found(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").touch()
    (tmp_path / "planted" / "reader.py").write_text(
        "import re\n"
        "SOUND = re.compile('(?:a+,)+!')\n"
        "TWO_WAYS = {'list': (re.compile(r'(?:\\d+[, ]*)+;'),)}\n"
    )
    (tmp_path / "run.py").write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        f"runpy.run_path({str(PATTERNS)!r}, run_name='__main__')\n"
    )
    run = _searched(str(tmp_path / "run.py"), "planted", "--count", "60")
    assert run.returncode == 1, run.stderr
    assert "planted.reader.TWO_WAYS" in run.stdout
    assert "planted.reader.SOUND" not in run.stdout.split("patterns,")[0]
