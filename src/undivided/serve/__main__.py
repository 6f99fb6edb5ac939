"""A worker of `undivided serve --workers N`: told what to do by its supervisor."""

from __future__ import annotations

import os
import socket
import sys

from undivided.core.errors import describe_error
from undivided.core.signals import end_in_order
from undivided.serve.server import read_job, serve
from undivided.serve.workers import READY, end_with_parent


def main() -> int:
    """Serve on the port that was inherited."""
    job, descriptor = read_job()
    listener = socket.socket(fileno=descriptor)
    end_with_parent()

    def announce() -> None:
        os.write(1, READY)

    try:
        serve(job, listener, announce)
    except Exception as error:
        described = describe_error(error)
        if described is None:
            raise
        print(f"undivided: {described[0]}", file=sys.stderr)
        return described[1]
    return 0


if __name__ == "__main__":
    code = main()
    end_in_order(code)
    sys.exit(code)
