"""Environments of other projects: reasoning-gym, TextArena, gem and more, behind `ludus.make`.

Each kind runs in an interpreter of its own, which `ludus env install KIND` makes; servers of other
projects are named by their address. `ludus list --available` shows all families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .kinds import EnvKind
    from .match import Match

__all__ = ["EnvKind", "Match"]

__getattr__, __dir__ = lazy_exports(__name__, {".kinds": "EnvKind", ".match": "Match"})
