"""`python -m ludus` and the `ludus` command."""


def main() -> None:
    """Run the command line."""
    from ludus.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
