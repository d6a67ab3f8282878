r"""The macros of siunitx: `\SI{36}{\gram}`, `\qty{3e8}{\metre\per\second}`, `\num{1.5}`."""

from __future__ import annotations

import re

from .vocabulary import PREFIXES, pairs, unit_symbol

_QUANTITY = re.compile(
    r"\\(?:(?:SI|qty)\s*(?:\[[^\[\]]*\])?\s*\{(?P<value>[^{}]*)\}|si|unit)\s*(?:\[[^\[\]]*\])?\s*"
    r"\{(?P<unit>(?:[^{}]|\{[^{}]*\})*)\}"
)
_NUMBER = re.compile(r"\\(?P<name>num|ang)\s*(?:\[[^\[\]]*\])?\s*\{([^{}]*)\}")
_EXPONENT = re.compile(r"(?<=\d)\s*[eEdD]\s*(?=[-+]?\d)")
# A comma starts decimals, unless three digits follow that may be a group.
_COMMA = re.compile(r"(?<=\d),(?=\d)(?!\d{3}(?!\d))")
_STEP = re.compile(
    r"\\(?P<macro>[A-Za-z]+)|\^\{?(?P<power>-?\d)\}?|(?P<plain>[A-Za-z]+)|(?P<over>/)"
)
_NAMES = pairs(
    "degreeCelsius=degC celsius=degC percent=% electronvolt=eV atmosphere=atm bar=bar "
    "hectare=ha watthour=Wh"
)
_POWERS = {"squared": 2, "square": 2, "cubed": 3, "cubic": 3}


def plain_units(text: str) -> str:
    r"""Return a text with the macros of siunitx written out.

    >>> plain_units(r"\SI{3e8}{\metre\per\second}"), plain_units(r"\num{1,5}")
    ('3 \\times 10^{8}\\text{ m/s}', '1.5')
    """
    text = _QUANTITY.sub(
        lambda match: f"{_number(match['value'] or '')}\\text{{ {_unit(match['unit'])}}}", text
    )
    return _NUMBER.sub(
        lambda match: _number(match[2]) + ("^\\circ" if match["name"] == "ang" else ""), text
    )


def _number(written: str) -> str:
    value = _COMMA.sub(".", written.strip())
    mantissa, *power = _EXPONENT.split(value, maxsplit=1)
    return f"{mantissa} \\times 10^{{{power[0].lstrip('+')}}}" if power else mantissa


def _unit(written: str) -> str:
    """Return a unit as the reader knows it, with a sign before each part but the first."""
    parts: list[str] = []
    sign, prefix, power = "", "", 1
    for step in _STEP.finditer(written):
        name = step["macro"] or step["plain"] or ""
        if step["over"] or name == "per":
            sign = "/"
        elif step["macro"] and name in PREFIXES:
            prefix = PREFIXES[name]
        elif (step["power"] or name in {"squared", "cubed"}) and parts:
            raised = int(step["power"] or _POWERS[name])
            parts[-1] = f"{parts[-1]}^{raised}" if raised != 1 else parts[-1]
        elif name in _POWERS:
            power = _POWERS[name]
        elif name:
            symbol = _NAMES.get(name) or unit_symbol(name) or name
            raised_to = f"^{power}" if power != 1 else ""
            parts.append((sign or "*") + prefix + symbol + raised_to)
            sign, prefix, power = "", "", 1
    return "".join(parts).removeprefix("*")
