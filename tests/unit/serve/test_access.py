"""Keys, rates, other hosts, other origins, settings from variables."""

import pytest

from undivided.config.serve import ServeConfig, environment_settings
from undivided.serve.access import Access, add_key, read_keys, shorten_address
from undivided.serve.errors import Refusal


@pytest.fixture(scope="module")
def keyed(serve, model, tmp_path_factory):
    """A server for the network, with keys, few requests a minute, and a web page of another origin."""
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    key, small = add_key(str(path), "Ann\nx"), add_key(str(path), "Bob")
    lines = path.read_text().splitlines()
    path.write_text(f"{lines[0]}\n{lines[1].replace('  #', ' 5 10 #')}\n# a comment\n\n")
    arguments = ["--api-keys", "--api-keys-db-path", str(path), "--host", "0.0.0.0", "--cors-origins", "https://a.example"]
    with serve(
        str(model), "--threads", "1", *arguments, env={"LT_ALLOWED_HOSTS": "translate.example", "LT_REQ_LIMIT": "20"}
    ) as running:
        running.url = running.url.replace("0.0.0.0", "127.0.0.1")
        running.key, running.small = key, small
        yield running


FIELDS = {"q": "The dog sees the house.", "source": "en", "target": "de"}


def test_without_a_key_nothing_is_translated(keyed):
    for path in ("/translate", "/detect", "/v1/translate"):
        got = keyed.post(path, json=FIELDS)
        assert got.status_code == 400
    assert keyed.post("/translate", json=FIELDS).json() == {"error": "Please contact the server operator to get an API key"}
    got = keyed.post("/translate", json=FIELDS | {"api_key": "wrong"})
    assert (got.status_code, got.json()) == (403, {"error": "Invalid API key"})
    assert keyed.post("/translate_file", files={"file": ("a.txt", b"a")}, data={"source": "en", "target": "de"}).status_code == 400
    assert keyed.post("/v2/translate", json={"text": ["a"], "target_lang": "DE"}).status_code == 403
    assert keyed.get("/v2/usage").status_code == 403
    assert keyed.get("/languages").status_code == keyed.get("/health").status_code == 200


def test_with_a_key_it_is(keyed):
    assert keyed.post("/translate", data=FIELDS | {"api_key": keyed.key}).status_code == 200
    headers = {"Authorization": f"DeepL-Auth-Key {keyed.key}"}
    assert keyed.post("/v2/translate", json={"text": ["A dog."], "target_lang": "DE"}, headers=headers).status_code == 200


def test_a_key_has_limits_of_its_own(keyed):
    fields = {"q": "A dog.", "source": "en", "target": "de", "api_key": keyed.small}
    answers = [keyed.post("/translate", json=fields) for _ in range(8)]
    assert [each.status_code for each in answers][:5] == [200] * 5
    assert answers[-1].status_code == 429
    assert answers[-1].json() == {"error": "Slowdown: 5 per 1 minute"}
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    got = keyed.post("/translate", json=FIELDS | {"api_key": keyed.key})
    assert got.status_code == 200


def test_the_name_of_a_host_that_was_allowed(keyed):
    assert keyed.get("/languages", headers={"Host": "translate.example"}).status_code == 200
    assert keyed.get("/languages", headers={"Host": "other.example"}).status_code == 421


def test_only_the_origin_that_was_allowed_may_call(keyed):
    got = keyed.get("/languages", headers={"Origin": "https://a.example"})
    assert got.headers["access-control-allow-origin"] == "https://a.example"
    got = keyed.get("/languages", headers={"Origin": "https://b.example"})
    assert "access-control-allow-origin" not in got.headers


def test_the_log_has_no_key(keyed):
    assert keyed.key not in "".join(keyed.log)


def test_another_host_without_keys_is_refused(run, model):
    code, _, err = run("serve", model, "--host", "0.0.0.0", "--port", "0")
    assert code == 2
    assert "--insecure" in err
    assert "--api-keys" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no model"),
        (["nothing-here"], "no such model folder"),
        (["--api-keys", "--api-keys-db-path", "nothing-here.txt"], "--new-key"),
        (["--port", "70000"], "port"),
        (["--char-limit", "x"], "char_limit"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, model, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = [] if not arguments or arguments[0] == "nothing-here" else [model]
    code, _, err = run("serve", *models, *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_new_key_is_printed_and_only_its_hash_is_kept(run, tmp_path):
    path = tmp_path / "keys.txt"
    code, out, _ = run("serve", "--new-key", "Ann", "--api-keys-db-path", path)
    assert code == 0
    assert out.strip() not in path.read_text()
    assert "Ann" in path.read_text()
    access = Access(ServeConfig(), read_keys(str(path)))
    assert access.find_key(out.strip()) == access.keys[0]
    with pytest.raises(Refusal, match="Invalid API key"):
        access.find_key(out.strip()[:-1])


def test_rates_are_counted_for_each_client_and_window():
    access = Access(ServeConfig(req_limit=3, hourly_req_limit=4))
    for _ in range(3):
        access.count(None, "1.2.3.4")
    with pytest.raises(Refusal, match="3 per 1 minute") as refused:
        access.count(None, "1.2.3.4")
    assert 0 < refused.value.retry_after <= 20
    access.count(None, "1.2.3.5", cost=3)
    with pytest.raises(Refusal):
        access.count(None, "1.2.3.5", cost=2)
    Access(ServeConfig(req_limit=3)).count(None, "1.2.3.4", cost=50)  # More than ever fits is served from a full bucket.
    with pytest.raises(Refusal):
        Access(ServeConfig(req_limit=0)).count(None, "1.2.3.4")


def test_the_clients_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr("undivided.serve.access.KNOWN_CLIENTS", 10)
    access = Access(ServeConfig())
    for number in range(100):
        access.count(None, f"10.0.0.{number}")
    assert len(access._clients) == 10


def test_an_ipv6_client_is_its_network():
    assert shorten_address("2001:db8::1") == shorten_address("2001:db8::ffff") != shorten_address("2001:db8:0:1::1")


def test_variables_of_libretranslate(monkeypatch):
    given, unknown = environment_settings({"LT_CHAR_LIMIT": "100", "LT_HOST": "::1", "LT_SSL": "1", "PATH": "x", "LT_PORT": ""})
    assert given == {"char_limit": "100", "host": "::1"}
    assert unknown == ["LT_SSL"]


def test_a_fault_of_a_variable_names_the_variable(run, model, monkeypatch):
    monkeypatch.setenv("LT_PORT", "abc")
    ran = run("serve", model)
    assert ran.code == 2
    assert "LT_PORT: port: expected a whole number, got 'abc'" in ran.err
    assert "LT_" not in run("serve", model, "--port", "abc").err
