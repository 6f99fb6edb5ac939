"""`python -m undivided`."""

from undivided.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
