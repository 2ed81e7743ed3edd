"""The command `spillway`."""


def main() -> None:
    """Entry point of the console script."""
    from spillway.cli.app import app

    app(prog_name="spillway")
