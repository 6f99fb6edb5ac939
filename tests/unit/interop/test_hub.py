"""`push`, `pull` and `import owner/name` against a stand-in of a Hugging Face hub on this machine."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from marian_models import make_marian
from undivided.artifact import load_artifact
from undivided.cli import main

COMMIT = "c" * 40


class Hub(BaseHTTPRequestHandler):
    """Repositories in memory, by the few requests that are needed."""

    repositories: dict[str, dict[str, bytes]]
    asked: list[str]
    lies: str

    def log_message(self, *_):
        pass

    def send(self, content, code=200, headers=()):
        self.send_response(code)
        for name, value in (("Content-Length", str(len(content))), *headers):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_json(self, value, code=200):
        self.send(json.dumps(value).encode(), code, [("Content-Type", "application/json")])

    def do_GET(self):
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/]+)?", path):
            files = self.repositories.get(found[1])
            if files is None:
                self.send(b"", 404, [("X-Error-Code", "RepoNotFound"), ("X-Error-Message", "Repository not found")])
                return
            siblings = [self.sibling(*each) for each in files.items()]
            self.send_json({"id": found[1], "modelId": found[1], "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            content = self.repositories[found[1]][found[3]]
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            self.send(content, 200, [("ETag", etag), ("X-Repo-Commit", COMMIT), ("Accept-Ranges", "bytes")])
        else:
            self.send(b"{}", 404)

    def do_HEAD(self):
        self.do_GET()

    def sibling(self, name, content):
        sha256 = hashlib.sha256(content + self.lies.encode()).hexdigest()
        lfs = {"sha256": sha256, "size": len(content), "pointerSize": 9}
        return {"rfilename": name, "size": len(content), "blobId": "b" * 40, "lfs": lfs}

    def do_POST(self):
        self.asked.append(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given.get('organization') or 'me'}/{given['name']}"
            self.repositories.setdefault(name, {})
            self.send_json({"url": f"http://{self.headers['Host']}/{name}", "name": name})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            self.send_json({"files": [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in files]})
        elif self.path == "/api/validate-yaml":
            self.send_json({"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main.*", self.path):
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.repositories[found[1]][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            url = f"http://{self.headers['Host']}/{found[1]}/commit/{COMMIT}"
            self.send_json({"success": True, "commitOid": COMMIT, "commitUrl": url, "hookOutput": ""})
        else:
            self.send(b"{}", 404)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    Hub.repositories, Hub.asked, Hub.lies = {}, [], ""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    yield Hub
    server.shutdown()
    server.server_close()


pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_pushed_model_comes_back_the_same(model, hub, tmp_path, capsys):
    assert main(["push", str(model), "me/en-de"]) == 2
    assert "under which licence" in capsys.readouterr().err
    assert main(["push", str(model), "me/en-de", "--license", "cc-by-4.0"]) == 0
    assert capsys.readouterr().out.strip().endswith(f"/me/en-de/commit/{COMMIT}")
    files = hub.repositories["me/en-de"]
    assert {"config.json", "model.safetensors", "manifest.json", "README.md"} <= files.keys()
    assert not [name for name in files if "training" in name or name.endswith((".pkl", ".py", ".bin"))]
    metadata = yaml.safe_load(files["README.md"].decode().split("---\n")[1])
    assert (metadata["license"], metadata["language"], metadata["pipeline_tag"]) == ("cc-by-4.0", ["en", "de"], "translation")
    (metric,) = metadata["model-index"][0]["results"][0]["metrics"]
    assert metric["type"] == "bleu"
    assert "tok:13a" in metric["name"]
    files["setup.py"] = b"raise SystemExit"
    assert main(["pull", "me/en-de", str(tmp_path / "back")]) == 0
    assert not any("setup.py" in path for path in hub.asked)
    assert (tmp_path / "back" / "manifest.json").read_bytes() == (model / "manifest.json").read_bytes()
    assert load_artifact(tmp_path / "back").recipe == load_artifact(model).recipe


@pytest.mark.parametrize("fault", ["tampered", "lies", "absent", "foreign", "down"])
def test_what_is_wrong_on_the_hub_is_one_line_and_leaves_nothing(fault, model, hub, tmp_path, capsys, monkeypatch):
    hub.repositories["me/m"] = {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}
    files = hub.repositories["me/m"]
    if fault == "tampered":
        files["config.json"] = files["config.json"].replace(b'"beam_size": 4', b'"beam_size": 5')
    elif fault == "lies":
        hub.lies = "x"
    elif fault == "absent":
        del hub.repositories["me/m"]
    elif fault == "foreign":
        del files["manifest.json"]
    else:
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["pull", "me/m", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    wanted = {"tampered": "config.json", "lies": "sha256", "absent": "me/m", "foreign": "undivided import", "down": "me/m"}[fault]
    assert wanted in said
    assert not (tmp_path / "out").exists()


def test_a_foreign_model_is_imported_by_its_name(hub, tmp_path):
    make_marian(tmp_path / "theirs")
    hub.repositories["them/opus"] = {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
    hub.repositories["them/opus"]["pytorch_model.bin"] = b"a pickle"
    assert main(["import", "them/opus", str(tmp_path / "ours"), "--license", "cc-by-4.0", "-q"]) == 0
    assert not any("pytorch_model.bin" in path for path in hub.asked)
    origin = load_artifact(tmp_path / "ours").facts["origin"]
    assert (origin["name"], origin["commit"]) == ("them/opus", COMMIT)
    assert main(["import", "them/none", str(tmp_path / "no")]) == 2
