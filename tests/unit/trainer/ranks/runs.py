"""`ludus train` with a reward that a policy without skill earns now and then.

python runs.py train ppo --reward ...
"""

from __future__ import annotations

import hashlib
import sys

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


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
