"""A fuzzer that reads the API's own description; the long run is `make prove-serve`."""

import re
import subprocess
import sys


def test_schemathesis_finds_no_fault(server, tmp_path):
    command = [sys.executable, "-c", "import schemathesis.cli as c; c.schemathesis()"]
    command += [
        "run",
        server.url + "/spec",
        "--max-examples",
        "8",
        "--seed",
        "7",
        "--no-color",
        "--no-shrink",
        "--generation-database",
        "none",
    ]
    # A schema cannot say which languages have a model between them, or which file can be read.
    command += ["--exclude-checks", "positive_data_acceptance", "--request-timeout", "120"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    found = re.search(r"([\d,]+) generated", done.stdout)
    assert done.returncode == 0, done.stdout[-5000:]
    assert int(found[1]) > 200
    assert 'status="5' not in server.get("/metrics").text
