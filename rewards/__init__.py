"""Verifiers, which say what an answer is worth, and the servers that offer them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from ludus.verdict import Status, Verdict

    from .checks import check_verifier
    from .compose import Composition, load_composition
    from .protocol import BatchVerifier, GroupVerifier, Sample, Verifier
    from .registry import make_verifier, register_verifier, verifier, verifier_names
    from .score import score_sample
    from .serving.server import ScoreService

__all__ = [
    "BatchVerifier",
    "Composition",
    "GroupVerifier",
    "Sample",
    "ScoreService",
    "Status",
    "Verdict",
    "Verifier",
    "check_verifier",
    "load_composition",
    "make_verifier",
    "register_verifier",
    "score_sample",
    "verifier",
    "verifier_names",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ludus.verdict": "Status Verdict",
        ".checks": "check_verifier",
        ".compose": "Composition load_composition",
        ".protocol": "BatchVerifier GroupVerifier Sample Verifier",
        ".registry": "make_verifier register_verifier verifier verifier_names",
        ".score": "score_sample",
        ".serving.server": "ScoreService",
    },
)
