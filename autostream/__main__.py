"""Run the command line as ``python -m autostream``."""

from autostream.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
