"""Build the wheel from the sdist and compare what it holds with the tree, file by file."""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("envs", "rewards", "agent", "trainer", "sandboxes")
DATA = {".toml", ".json", ".jsonl", ".css", ".js", ".html", ".typed", ".jinja", ".j2", ".txt", ".c"}


def expected() -> set[str]:
    """Every tracked module and data file of the package, as the wheel should name it."""
    listed = subprocess.run(
        ["git", "ls-files", "src/ludus", *FOLDERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file()]
    kept = [name for name in names if Path(name).suffix in {".py", *DATA}]
    return {"ludus/" + name.removeprefix("src/ludus/") for name in kept}


def built(folder: str) -> set[str]:
    """What a wheel made from the sdist holds."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = Path(folder).glob("*.whl")
    return {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("ludus/")}


def main() -> int:
    """Print what is missing or too much."""
    with tempfile.TemporaryDirectory() as folder:
        held = built(folder)
    missing = expected() - held
    foreign = {name for name in held - expected() if "__pycache__" in name or "/tests/" in name}
    for name in sorted(missing):
        print(f"missing from the wheel: {name}")
    for name in sorted(foreign):
        print(f"does not belong in the wheel: {name}")
    print(f"the wheel holds {len(held)} files of ludus")
    return 1 if missing or foreign else 0


if __name__ == "__main__":
    sys.exit(main())
