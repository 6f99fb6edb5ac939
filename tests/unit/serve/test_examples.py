"""The examples of docs/serving.md for other machines: read by the programs they are for, where those are installed."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
import requests
import yaml

from undivided.cli import make_parser
from undivided.config.serve import environment_settings

TEXT = (Path(__file__).parents[3] / "docs" / "serving.md").read_text(encoding="utf-8")


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)


def parse(words):
    """What `undivided` understands; it ends with SystemExit where a flag is unknown."""
    return make_parser().parse_args(words)


def test_the_container_file_starts_what_is_served():
    (text,) = blocks("dockerfile")
    lists = [json.loads(line.partition(" ")[2]) for line in text.splitlines() if line.startswith(("ENTRYPOINT", "CMD"))]
    words = [word for each in lists for word in each]
    assert words[0] == "undivided"
    assert parse(words[1:]).models == ["/models/en-de"]
    user = re.search(r"^USER (\d+)$", text, re.MULTILINE)  # By number: Kubernetes cannot tell that a name is not root's.
    assert user
    assert user[1] != "0"


def test_compose_and_kubernetes_name_what_there_is():
    compose, cluster = (list(yaml.safe_load_all(each)) for each in blocks("yaml"))
    service = compose[0]["services"]["translate"]
    given, unknown = environment_settings(service["environment"])
    assert (sorted(given), unknown) == (["allowed_hosts", "char_limit"], [])
    compile(service["healthcheck"]["test"][3], "healthcheck", "exec")
    deployment, balancer = cluster
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    parse(["serve", "m", *container["args"]])
    assert (
        container["readinessProbe"]["httpGet"]["port"]
        == container["ports"][0]["containerPort"]
        == balancer["spec"]["ports"][0]["port"]
    )


def test_the_unit_is_one_of_systemd(tmp_path):
    (text,) = blocks("ini")
    command = re.search(r"^ExecStart=(\S+) (.*)$", text, re.MULTILINE)
    assert parse(command[2].split()).models
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "undivided.service"
    unit.write_text(text.replace(command[1], "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    if "Failed to" in done.stderr and "bus" in done.stderr:
        pytest.skip(f"systemd does not run here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def proxy(serve, model, tmp_path):
    """The nginx of the example, without TLS, in front of a server that trusts it."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    (text,) = blocks("nginx")
    arguments = ["--threads", "1", "--trust-forwarded-for", "--allowed-hosts", "translate.example.org", "--req-limit", "20"]
    with serve(str(model), *arguments) as running, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        site = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};").replace("127.0.0.1:5000", f"127.0.0.1:{running.port}")
        assert site.count(str(port)) == site.count(str(running.port)) == 1
        folders = "".join(f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config = tmp_path / "nginx.conf"
        user = "user root; " if os.getuid() == 0 else ""  # Else its worker could not write into our folder.
        head = f"{user}daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}} http {{ access_log off; {folders}\n"
        config.write_text(head + site + "}\n")
        nginx = subprocess.Popen([program, "-e", f"{tmp_path}/log", "-c", str(config)], stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and nginx.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            assert nginx.poll() is None, nginx.stderr.read()
            yield f"http://127.0.0.1:{port}"
        finally:
            nginx.terminate()
            nginx.wait(20)
            nginx.stderr.close()


def test_nginx_in_front(proxy):
    host = {"Host": "translate.example.org"}
    fields = {"q": ["The dog sees the house.", "A cat."], "source": "en", "target": "de"}
    with requests.Session() as session:
        got = session.post(f"{proxy}/translate", json=fields, headers=host, timeout=60)
        assert (got.status_code, len(got.json()["translatedText"])) == (200, 2)
        got = session.post(f"{proxy}/v1/translate", json=fields | {"stream": True}, headers=host, timeout=60)
        lines = [json.loads(line) for line in got.text.splitlines()]
        assert [line.get("done", False) for line in lines] == [False, False, True]
        # A file of more than nginx's own default of one megabyte gets through to our answer.
        file = {"file": ("a.txt", b"\n" * 2_000_000)}
        got = session.post(f"{proxy}/translate_file", data={"source": "en", "target": "de"}, files=file, headers=host, timeout=60)
        assert got.status_code in (200, 429), got.text
        # Rates are counted by the address that nginx saw, whatever the client says it is.
        statuses = [
            session.post(
                f"{proxy}/translate", json=fields, headers=host | {"X-Forwarded-For": f"10.0.0.{number}"}, timeout=60
            ).status_code
            for number in range(25)
        ]
        assert statuses.count(429) > 5
        got = session.get(f"{proxy}/languages", headers={"Host": "evil.example"}, timeout=60)
        assert got.status_code == 421
