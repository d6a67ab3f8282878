"""What an answer is worth: verifiers, the pool they run in, and how they are served."""

from ludus.verdict import Status, Verdict

from .protocol import BatchVerifier, GroupVerifier, Sample, Verifier
from .registry import make_verifier, register_verifier, verifier, verifier_names

__all__ = [
    "BatchVerifier",
    "GroupVerifier",
    "Sample",
    "Status",
    "Verdict",
    "Verifier",
    "make_verifier",
    "register_verifier",
    "verifier",
    "verifier_names",
]
