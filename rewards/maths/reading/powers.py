"""Binding powers of the operators, loosest first."""

from __future__ import annotations

ARROW, LOR, LAND, CONDITION, MOD, RELATION, RATIO, SET, BINARY, SUM, UNIT, PRODUCT, POWER = range(
    5, 70, 5
)
