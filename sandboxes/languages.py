"""The languages of sandboxes, with the commands that compile and run a program of each."""

from __future__ import annotations

from dataclasses import dataclass

from ludus.errors import UnknownName


class UnknownLanguage(UnknownName):
    """No sandbox language has this name."""

    kind = "language"


@dataclass(frozen=True, slots=True)
class Language:
    """A language: the name of the source file, and the commands that compile and run the
    program.
    """

    source: str
    run: tuple[str, ...]
    compile: tuple[str, ...] = ()
    product: str = ""
    """The file that the compiler writes and that `run` needs; empty for languages that are not
    compiled.
    """


_VERILOG = (
    "iverilog",
    "-Wall",
    "-Winfloop",
    "-Wno-timescale",
    "-g2012",
    "-o",
    "program.vvp",
    "main.sv",
)

LANGUAGES: dict[str, Language] = {
    "python": Language("main.py", ()),
    "bash": Language("main.sh", ("bash", "main.sh")),
    "c": Language(
        "main.c",
        ("./program",),
        ("gcc", "-O2", "-std=gnu17", "-o", "program", "main.c", "-lm"),
        "program",
    ),
    "cpp": Language(
        "main.cpp",
        ("./program",),
        ("g++", "-O2", "-std=gnu++20", "-o", "program", "main.cpp"),
        "program",
    ),
    "verilog": Language("main.sv", ("vvp", "-n", "program.vvp"), _VERILOG, "program.vvp"),
}
"""The languages by name. Python runs in the warm interpreter, and needs no command."""

ALIASES = {
    "py": "python",
    "python3": "python",
    "sh": "bash",
    "c++": "cpp",
    "cc": "cpp",
    "systemverilog": "verilog",
}


def find_language(name: str) -> tuple[str, Language]:
    """Return the canonical name of a language, and the language.

    Upper case and the names in `ALIASES` are understood.

    Raises:
        UnknownLanguage: no language has this name; the message suggests a similar name.
    """
    canonical = ALIASES.get(name.lower(), name.lower())
    if canonical not in LANGUAGES:
        raise UnknownLanguage.near(name, LANGUAGES)
    return canonical, LANGUAGES[canonical]
