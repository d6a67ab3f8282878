"""Writes `agent/templates/releases.json`: the digests by which released templates are recognised.

    python scripts/template_releases.py "Qwen3|qwen3|PATH" "SmolLM2-Instruct|smollm2|PATH" ...

Each argument names the models, the training template of the project for them, and the file of the
released template; a fourth part, "brief", says that the template lists names of tools alone by
design. Digests of releases that are not named stay as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from ludus.agent.templates.choice import ReleasedTemplate, digest_of, short_digest, statements_of

OUT = Path(__file__).parent.parent / "agent" / "templates" / "releases.json"


def main(arguments: list[str]) -> int:
    """Add or replace the releases that `arguments` name."""
    known: dict[str, ReleasedTemplate] = {}
    if OUT.exists():
        known = {
            release.digest: release
            for release in msgspec.json.decode(OUT.read_bytes(), type=list[ReleasedTemplate])
        }
    for argument in arguments:
        name, family, path, *brief = argument.split("|")
        template = Path(path).read_text(encoding="utf-8")
        statements = [short_digest(part) for part in statements_of(template)]
        digest = digest_of(template)
        known[digest] = ReleasedTemplate(name, family, digest, statements, brief_tools=bool(brief))
    rows = sorted(known.values(), key=lambda release: (release.family, release.name))
    OUT.write_text(
        "[\n" + ",\n".join(msgspec.json.encode(row).decode() for row in rows) + "\n]\n",
        encoding="utf-8",
    )
    print(f"{len(rows)} releases in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
