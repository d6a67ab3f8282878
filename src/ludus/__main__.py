"""`python -m ludus` and the `ludus` command."""

import sys


def main() -> int:
    """Run the command line and return the exit status."""
    from ludus.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
