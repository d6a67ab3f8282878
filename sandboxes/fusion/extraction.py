"""Finds the program in a completion, by the rules that SandboxFusion's users rely on.

Blocks between fences come before a block whose fence was never closed, and these before text that
merely looks like code. Among the best, the first in the language asked for is chosen, else the
first.

Run as a program, in a slot, this file runs a client's own extraction logic, which calls these
functions and `submit_code_blocks([CodeBlock(...)])`. The submitted blocks are written as JSON to
the standard output, which the logic itself cannot reach. Standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

FENCED, UNCLOSED, GUESSED = 30, 20, 10
"""Priorities, as the protocol numbers them; higher wins."""

TYPES = {FENCED: "fenced", UNCLOSED: "incomplete_fenced", GUESSED: "heuristic"}

JOB_FILE = "job.json"
"""The file with `completion` and `logic`, when this file runs as a program."""

_FENCE = "```"
_NAMES = {
    "python": "python py python3",
    "cpp": "cpp c++ cxx",
    "nodejs": "javascript js nodejs",
    "typescript": "typescript ts",
    "go": "go golang",
    "java": "java",
    "csharp": "csharp c# cs",
    "bash": "bash sh shell",
    "rust": "rust rs",
    "sql": "sql",
    "julia": "julia jl",
    "lua": "lua",
    "php": "php",
    "perl": "perl",
    "R": "r",
    "ruby": "ruby rb",
    "scala": "scala",
    "c": "c",
    "verilog": "verilog systemverilog sv",
    "racket": "racket",
    "swift": "swift",
}
_LANGUAGE_OF = {name: language for language, names in _NAMES.items() for name in names.split()}


@dataclass(kw_only=True)
class CodeBlock:
    """A piece of a completion that may be the program."""

    priority: int
    code: str
    language: str = ""
    """The language, in the protocol's spelling; empty where the fence did not say."""


def extract_fenced_code(completion: str) -> list[CodeBlock]:
    r"""Return the blocks between fences. A fence opens anywhere in a line and closes at a line's
    start.

    >>> extract_fenced_code("So:\n```python\nx = 1\n```")[0].code
    'x = 1'
    """
    blocks: list[CodeBlock] = []
    label, code = "", list[str]()
    inside = False
    for line in completion.split("\n"):
        if not inside:
            _, fence, label = line.partition(_FENCE)
            inside, code = bool(fence), []
        elif line.lstrip().startswith(_FENCE):
            blocks.append(_block(FENCED, label, code))
            inside = False
        else:
            code.append(line)
    return blocks


def extract_incomplete_fenced_code(completion: str) -> list[CodeBlock]:
    """Return what follows the first fence, up to the end."""
    _, fence, body = completion.partition(_FENCE)
    label, newline, code = body.partition("\n")
    return [_block(UNCLOSED, label, code.split("\n"))] if fence and newline else []


def extract_heuristic_code(completion: str, language: str = "") -> list[CodeBlock]:
    """Return Python functions and classes outside any fence; for Bash, the whole text."""
    lines = [line for line in completion.split("\n") if line.strip()]
    if language == "python":
        return [_block(GUESSED, language, code) for code in _definitions(lines)]
    return [_block(GUESSED, language, lines)] if language == "bash" else []


def _definitions(lines: list[str]) -> Iterator[list[str]]:
    """Yield each function and class, with the imports and comments right above."""
    start = position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if line.startswith(("def ", "class ")):
            end = position
            while end < len(lines) and lines[end][:1].isspace():
                end += 1
            if end > position:
                yield lines[start:end]
            start = position = end
        elif not line.startswith(("import", "from", "#")):
            start = position


def blocks_of(completion: str, language: str) -> list[CodeBlock]:
    """Return the blocks of all three kinds."""
    return [
        *extract_fenced_code(completion),
        *extract_heuristic_code(completion, language),
        *extract_incomplete_fenced_code(completion),
    ]


def choose(blocks: Iterable[CodeBlock], language: str) -> CodeBlock | None:
    """Return the best block; None if `blocks` is empty."""
    ranked = list(blocks)
    highest = max((block.priority for block in ranked), default=0)
    best = [block for block in ranked if block.priority == highest]
    same_language = [block for block in best if block.language == language]
    return next(iter(same_language or best), None)


def _block(priority: int, label: str, lines: list[str]) -> CodeBlock:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    language = _LANGUAGE_OF.get(label.strip().lower(), "")
    return CodeBlock(priority=priority, language=language, code="\n".join(lines[:end]))


def main() -> None:
    """Run a client's logic and report the submitted blocks."""
    with open(JOB_FILE, encoding="utf-8") as stream:
        job = json.load(stream)
    # What the logic prints goes to the errors, so that the standard output is the report alone.
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    blocks: list[CodeBlock] = []
    names = {
        "CodeBlock": CodeBlock,
        "completion": job["completion"],
        "submit_code_blocks": blocks.extend,
        "extract_fenced_code": extract_fenced_code,
        "extract_incomplete_fenced_code": extract_incomplete_fenced_code,
        "extract_heuristic_code": extract_heuristic_code,
    }
    exec(compile(job["logic"], "custom_extract_logic", "exec"), names)
    json.dump([asdict(block) for block in blocks], report)
    report.flush()


if __name__ == "__main__":
    main()
