"""`ludus train` with a reward that a policy without skill earns now and then.

python runs.py train ppo --reward ...
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

import ludus
from ludus.cli.main import main
from ludus.rewards import Sample
from ludus.verdict import Verdict


@ludus.verifier("test/parity")
class ParityOfWords:
    """A reward of 0 or 1 by a digest of what the policy said, so that advantages are not all 0."""

    async def score(self, sample: Sample) -> Verdict:
        digest = hashlib.sha256(repr(sample.response).encode()).digest()
        return Verdict.of(float(digest[0] % 2))


def die_in_save(number: int) -> None:
    """Have this process killed in the middle of its `number`-th checkpoint: half a file of its part
    is written, and no other process has been told.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    write, saves = FileSystemWriter.write_data, count(1)

    def half(self: Any, plan: Any, planner: Any) -> Any:
        if next(saves) == number:
            (Path(self.path) / f"__{os.environ['RANK']}_0.distcp").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
        return write(self, plan, planner)

    FileSystemWriter.write_data = half  # type: ignore[method-assign]


if __name__ == "__main__":
    dying, _, save = os.environ.get("LUDUS_TEST_DIE_IN_SAVE", "").partition(":")
    if dying and dying == os.environ["RANK"]:
        die_in_save(int(save))
    raise SystemExit(main(sys.argv[1:]))
