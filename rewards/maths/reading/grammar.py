"""The notation at a glance: what every kind of token means, before and after a value."""

from __future__ import annotations

from . import atoms, commands, conditions, environments, literals, measures, operators, powers
from .pratt import Grammar, Infix

_MULTIPLIES = Infix(powers.PRODUCT, operators.product_of)
_ADDS = Infix(powers.SUM, operators.sum_of)

GRAMMAR = Grammar(
    prefix={
        "num": literals.number,
        "sym": atoms.name,
        "const": atoms.constant,
        "func": atoms.function,
        "cmd": commands.command,
        "open": atoms.bracket,
        "close": atoms.closing_first,
        "group": atoms.group,
        "bar": atoms.absolute,
        "word": literals.in_words,
        "sign": literals.point_first,
        "emptyset": atoms.empty_set,
        "currency": atoms.currency,
        "sub": atoms.prescripted,
        "^": atoms.prescripted,
        "+": operators.signed,
        "-": operators.signed,
        "pm": operators.plus_minus,
        "not": operators.negation,
    },
    infix={
        "arrow": (Infix(powers.ARROW, operators.arrow),),
        "lor": (Infix(powers.LOR, operators.logic),),
        "land": (Infix(powers.LAND, operators.logic),),
        "rel": (Infix(powers.RELATION, operators.relation),),
        "sign": (Infix(powers.RATIO, operators.ratio),),
        "setop": (Infix(powers.SET, operators.set_operation),),
        "binary": (Infix(powers.BINARY, operators.binary),),
        "+": (_ADDS,),
        "-": (_ADDS,),
        "pm": (_ADDS,),
        "*": (_MULTIPLIES,),
        "·": (_MULTIPLIES,),
        "×": (_MULTIPLIES,),
        "/": (_MULTIPLIES,),
        "num": (_MULTIPLIES,),
        "sym": (_MULTIPLIES, Infix(powers.SET, operators.plain_union)),
        "const": (_MULTIPLIES,),
        "func": (_MULTIPLIES,),
        "emptyset": (_MULTIPLIES,),
        "bar": (_MULTIPLIES,),
        "open": (
            _MULTIPLIES,
            Infix(powers.UNIT, measures.counted),
            Infix(powers.MOD, operators.modulus),
        ),
        "group": (Infix(powers.POWER, operators.empty_braces), _MULTIPLIES),
        "cmd": (
            _MULTIPLIES,
            Infix(powers.BINARY, operators.unknown_command),
            Infix(powers.RELATION, operators.relation),
        ),
        "currency": (Infix(powers.POWER, operators.currency_after), _MULTIPLIES),
        "word": (
            Infix(powers.UNIT, measures.with_unit),
            Infix(powers.RATIO, operators.ratio),
            Infix(powers.CONDITION, conditions.given),
        ),
        "^": (Infix(powers.POWER, operators.raised),),
        "sub": (Infix(powers.POWER, operators.subscripted),),
        "prime": (Infix(powers.POWER, operators.primed),),
        "fact": (Infix(powers.POWER, operators.factorial),),
        "percent": (Infix(powers.POWER, operators.percent),),
        "degree": (Infix(powers.POWER, operators.degrees),),
        "circ": (Infix(powers.POWER, operators.composition),),
        "mod": (Infix(powers.MOD, operators.modulus),),
    },
    commands={
        **dict.fromkeys(commands.FRACTIONS, commands.fraction),
        **dict.fromkeys(("binom", "dbinom", "tbinom"), commands.binomial),
        **dict.fromkeys(("mathbb", "Bbb"), commands.number_set),
        **dict.fromkeys(("boxed", "fbox"), commands.boxed),
        **dict.fromkeys(("overline", "overarc"), commands.line),
        **dict.fromkeys(commands.INTEGRALS, commands.integral),
        "sqrt": commands.root,
        "begin": environments.environment,
        "sum": commands.series("sum"),
        "prod": commands.series("prod"),
        "lim": commands.limit,
    },
)
"""The grammar of answers; binding powers are in `powers`."""
