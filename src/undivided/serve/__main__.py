"""A worker of `undivided serve --workers N`: told what to do by its supervisor."""

from __future__ import annotations

import os
import sys

from undivided.core.errors import describe_error
from undivided.core.signals import end_in_order
from undivided.serve.server import Job, open_port, serve
from undivided.serve.workers import READY, end_with_parent


def main() -> int:
    """Serve on the port that all workers share; nobody is sent here before the models are loaded."""
    job = Job.from_json(sys.stdin.readline())
    end_with_parent()

    def announce() -> None:
        os.write(1, READY)

    try:
        with open_port(job.config, is_shared=True, listens=False) as listener:
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
