"""Recognises the chat templates of released models by digest, and tells near misses.

Templates are compared after normalisation. For each released template the project keeps its digest
and a digest of each of its statements, and not its text (decision 0520). A template that differs in
a few statements is thereby known as a near miss, and the statements that differ can be named.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import cache
from pathlib import Path

import msgspec

NEAR = 0.7
"""Share of statements in common from which a template is a near miss of a released one."""
SHOWN = 3
"""How many of the differing statements are quoted."""
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_STATEMENT = re.compile(r"\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)


class ReleasedTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A released template."""

    name: str
    """The models that bring the template."""
    family: str
    """The training template of the project for these models."""
    digest: str
    statements: list[str]
    """A short digest of each statement and each text between statements."""
    brief_tools: bool = False
    """Whether the template lists the names of tools and parameters alone, by design."""


class Recognition(msgspec.Struct, frozen=True):
    """The facts that the digests tell about a model's template."""

    digest: str
    said: str
    """The result in words for a person: a release, a near miss with the difference, or unknown."""
    family: str = ""
    """The training template for this very template; empty for a near miss."""
    brief_tools: bool = False
    """See `ReleasedTemplate.brief_tools`."""


def normalised(template: str) -> str:
    """Return a template without comments, and without white space at the ends of lines."""
    lines = _COMMENT.sub("", template.replace("\r\n", "\n")).split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def digest_of(template: str) -> str:
    """Return the digest of a normalised template: 16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(normalised(template).encode()).hexdigest()[:16]


def statements_of(template: str) -> list[str]:
    """Return the statements of a template and the texts between, without white space around."""
    text, parts, end = normalised(template), list[str](), 0
    for statement in _STATEMENT.finditer(text):
        parts += [text[end : statement.start()].strip(), " ".join(statement[0].split())]
        end = statement.end()
    parts.append(text[end:].strip())
    return [part for part in parts if part]


def short_digest(statement: str) -> str:
    """Return the digest of a statement: six hexadecimal digits."""
    return hashlib.sha256(statement.encode()).hexdigest()[:6]


@cache
def releases() -> tuple[ReleasedTemplate, ...]:
    """Return all released templates that are known."""
    path = Path(__file__).with_name("releases.json")
    return tuple(msgspec.json.decode(path.read_bytes(), type=list[ReleasedTemplate]))


def recognise(template: str) -> Recognition:
    """Return which release brings a template, or which comes near."""
    digest = digest_of(template)
    same = next((release for release in releases() if release.digest == digest), None)
    if same is not None:
        return Recognition(digest, f"the template of {same.name}", same.family, same.brief_tools)
    statements = {short_digest(part): part for part in statements_of(template)}
    own_counts = Counter(short_digest(part) for part in statements_of(template))
    shares: list[tuple[float, ReleasedTemplate]] = []
    for release in releases():
        # Counters, so that a statement which is repeated counts as often as it occurs.
        counts = Counter(release.statements)
        common, all_counts = own_counts & counts, own_counts | counts
        shares.append((common.total() / max(all_counts.total(), 1), release))
    share, nearest = max(shares, key=lambda pair: pair[0])
    if share < NEAR:
        return Recognition(digest, "no template that ludus knows")
    release_counts = Counter(nearest.statements)
    differences: list[str] = []
    if added := [statements[unknown] for unknown in (own_counts - release_counts)]:
        quoted = ", ".join(repr(part[:80]) for part in added[:SHOWN])
        rest = f" and {len(added) - SHOWN} more" if len(added) > SHOWN else ""
        differences.append(f"{len(added)} of its statements are other: {quoted}{rest}")
    if missing := (release_counts - own_counts).total():
        differences.append(f"{missing} of the released statements are missing")
    difference = " and ".join(differences) or "its statements are in another order"
    return Recognition(digest, f"near {nearest.name} ({nearest.family}), but {difference}")
