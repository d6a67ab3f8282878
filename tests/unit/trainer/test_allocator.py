"""What checkpointed layers free goes back to the system."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "kept_by_layers.py"
INPUTS = 8 * 256 * 256 * 4 * 12
"""Bytes of the inputs of twelve layers: rows, tokens, channels, bytes of a float32."""

glibc_alone = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")


@pytest.mark.slow
@glibc_alone
def test_a_pass_holds_the_inputs_of_its_layers_and_little_more() -> None:
    """Without `trimmer` the same pass holds six times its inputs."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    made = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**clean, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert INPUTS < int(made.stdout) < 2 * INPUTS
