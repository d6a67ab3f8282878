"""Write the catalogue of a kind of environments, from the package that is installed.

python scripts/outside_catalogue.py reasoning-gym [--python PYTHON]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

import ludus.envs.outside as outside
from ludus.envs.outside.home import python_of
from ludus.envs.outside.kinds import Catalogue, find_kind
from ludus.envs.outside.process import START_TIMEOUT_S, interpreter


def main() -> None:
    """Ask the adapter of the kind for its families, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind")
    parser.add_argument("--python", default="")
    options = parser.parse_args()
    kind = find_kind(options.kind)
    process = interpreter(
        python_of(kind, options.python),
        kind.adapter,
        memory_bytes=0,
        timeout_s=START_TIMEOUT_S,
        label=kind.name,
    )
    catalogue = msgspec.convert(process.catalogue(), Catalogue)
    place = Path(outside.__file__).resolve().parent / "catalogue" / f"{kind.name}.json"
    place.parent.mkdir(exist_ok=True)
    head = msgspec.json.encode(
        {"package": catalogue.package, "version": catalogue.version}
    ).decode()
    families = ",\n".join(msgspec.json.encode(family).decode() for family in catalogue.families)
    place.write_text(f'{head[:-1]},"families":[\n{families}\n]}}\n')
    variants = sum(max(1, len(family.variants)) for family in catalogue.families)
    print(f"{place.name}: {len(catalogue.families)} families, {variants} variants")


if __name__ == "__main__":
    main()
