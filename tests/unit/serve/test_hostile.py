"""Bad clients: what they send is refused, and others are served meanwhile."""

import json
import select
import socket
import time

import pytest

LIMITS = [
    "--body-limit",
    "20000",
    "--file-limit",
    "30000",
    "--body-timeout",
    "1.5",
    "--req-limit",
    "-1",
    "--connection-limit",
    "150",
]


@pytest.fixture(scope="module")
def strict(serve, model):
    with serve(str(model), "--threads", "1", *LIMITS) as running:
        yield running


def connect(running):
    return socket.create_connection(("127.0.0.1", running.port), timeout=30)


def head(length: str = "", path: str = "/translate", kind: str = "application/json") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{length}\r\n".encode()


def answer(connection) -> tuple[int, bytes]:
    """Status and all that comes after it, up to the end of the connection or of the body."""
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
            start = data.find(b"\r\n\r\n")
            if start > 0:
                sizes = [line for line in data[:start].lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if sizes and len(data) >= start + 4 + int(sizes[0].split(b":")[1]):
                    break
    except ConnectionResetError:
        pass
    return (int(data.split(b" ", 2)[1]) if data else 0), data.partition(b"\r\n\r\n")[2]


def is_healthy(running) -> bool:
    started = time.monotonic()
    ok = running.get("/health").json() == {"status": "ok"}
    return ok and time.monotonic() - started < 20  # A bound for a machine that is busy; the proof measures.


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read(strict):
    with connect(strict) as connection:
        connection.sendall(head("Content-Length: 100000000\r\n"))
        status, body = answer(connection)
    assert status == 413
    assert "20000" in json.loads(body)["error"]


def test_a_body_without_length_is_refused_once_it_is_too_large(strict):
    with connect(strict) as connection:
        connection.sendall(head("Transfer-Encoding: chunked\r\n"))
        sent = 0
        try:
            for _ in range(1000):
                connection.sendall(b"2710\r\n" + b"a" * 10000 + b"\r\n")
                sent += 10000
        except OSError:
            pass
        status, _ = answer(connection)
    assert status in (413, 0)  # 0: the connection was reset before the answer could be read.
    assert sent < 10_000_000
    assert is_healthy(strict)


def test_a_slow_header_is_given_up(strict):
    started = time.monotonic()
    with connect(strict) as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\n")
        try:
            for _ in range(40):
                time.sleep(0.25)
                connection.sendall(b"X: y\r\n")
            raise AssertionError("still open")
        except OSError:
            pass
    assert 1 < time.monotonic() - started < 9


def test_a_slow_body_is_refused(strict):
    with connect(strict) as connection:
        connection.sendall(head("Content-Length: 1000\r\n") + b'{"q"')
        status, body = answer(connection)
    assert (status, json.loads(body)) == (408, {"error": "the request arrived too slowly"})


def test_connections_that_say_nothing_are_closed_and_keep_nobody_out(strict):
    idle = [connect(strict) for _ in range(100)]
    assert is_healthy(strict)
    for connection in idle:
        connection.settimeout(30)
        assert connection.recv(10) == b""
        connection.close()


def test_beyond_the_limit_of_connections_the_oldest_idle_one_is_closed_and_others_are_served(strict):
    idle = [connect(strict) for _ in range(400)]
    assert is_healthy(strict)
    closed, _, _ = select.select(idle, [], [], 0)
    assert set(idle[:200]) <= set(closed)
    for connection in idle:
        connection.close()
    assert is_healthy(strict)


def test_half_closed_and_broken_connections(strict):
    for _ in range(20):
        with connect(strict) as connection:
            connection.sendall(head("Content-Length: 100\r\n") + b'{"q": "The dog')
            connection.shutdown(socket.SHUT_WR)
            answer(connection)
        with connect(strict) as connection:
            body = json.dumps({"q": "The dog sees the house.", "source": "en", "target": "de"}).encode()
            connection.sendall(head(f"Content-Length: {len(body)}\r\n") + body)
        with connect(strict) as connection:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\xff" * 10)
    assert is_healthy(strict)


BODIES = {
    "invalid UTF-8": b'{"q": "\xff\xfe\xfa", "source": "en", "target": "de"}',
    "deep JSON": b'{"q": ' + b"[" * 19000,
    "deep JSON that ends": b'{"q": ' + b"[" * 9000 + b"]" * 9000 + b', "source": "en", "target": "de"}',
    "a huge list": json.dumps({"q": ["a"] * 3000, "source": "en", "target": "de"}).encode(),
    "many parameters": b"{" + b",".join(b'"%d":0' % number for number in range(1900)) + b"}",
    "many halves of characters": b'{"q": {"' + b"\\ud800" * 2500 + b'": 1}, "source": "en", "target": "de"}',
    "no object": b'["q"]',
    "nothing": b"",
    "a number of many digits": b'{"q": ' + b"9" * 10000 + b', "source": "en", "target": "de"}',
    "not a number": b'{"q": NaN, "source": "en", "target": "de"}',
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("path", ["/translate", "/detect", "/v1/translate", "/v1/look", "/v2/translate", "/v1/chat/completions"])
def test_bad_bodies_are_refused(strict, name, path):
    got = strict.post(path, data=BODIES[name], headers={"Content-Type": "application/json"})
    assert got.status_code == 400, got.text
    assert got.json()["error"]


FORMS = {
    "invalid UTF-8": (b"q=%ff%fe\xff&source=en&target=de", "application/x-www-form-urlencoded", (200, 400)),
    "many fields": (b"&".join(b"a%d=1" % number for number in range(1500)), "application/x-www-form-urlencoded", (400,)),
    "nothing but signs": (b"&" * 19000, "application/x-www-form-urlencoded", (400,)),
    "nothing but codes": (b"q=" + b"%00" * 6000, "application/x-www-form-urlencoded", (400,)),
    "no boundary": (b"--x\r\n", "multipart/form-data", (400,)),
    "a broken part": (b"--x\r\nContent-Disposition: form-data; name=\r\n", "multipart/form-data; boundary=x", (400,)),
    "an unknown charset": (b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\na\r\n--x--\r\n",
                           "multipart/form-data; boundary=x; charset=nonsense", (200, 400)),
    "UTF-16": ("q=a&source=en&target=de".encode("utf-16"), "application/x-www-form-urlencoded; charset=utf-16", (400,)),
    "something else": (b"\x00\x01", "application/octet-stream", (400,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("path", ["/translate", "/detect", "/translate_file", "/v2/translate"])
def test_bad_forms_are_refused(strict, name, path):
    body, kind, expected = FORMS[name]
    got = strict.post(path, data=body, headers={"Content-Type": kind})
    assert got.status_code in expected, got.text


def test_halves_of_characters_become_a_sign_that_they_were_there(strict):
    got = strict.post(
        "/translate", data=rb'{"q": "dog \ud800 \udc00", "source": "en", "target": "de", "alternatives": 1}',
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    assert got.status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "", "localhost.evil.example", "[::1", "127.0.0.1.evil.example"]
)
def test_another_host_is_refused(strict, host):
    got = strict.get("/languages", headers={"Host": host})
    assert got.status_code in (421, 400)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:5000", "192.168.1.2:80"])
def test_addresses_and_localhost_are_this_server(strict, host):
    assert strict.get("/languages", headers={"Host": host}).status_code == 200


def test_every_answer_has_the_headers_of_safety(strict):
    for got in (strict.get("/"), strict.get("/nothing"), strict.get("/health"), strict.post("/translate"), strict.get("/docs")):
        assert "default-src 'none'" in got.headers["content-security-policy"]
        assert "unsafe" not in got.headers["content-security-policy"]
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["referrer-policy"] == "no-referrer"
        assert "server" not in got.headers
        assert not [name for name in got.headers if name.lower().startswith("access-control")]


def test_nothing_of_all_this_was_a_fault_and_no_text_is_in_the_log(strict):
    assert is_healthy(strict)
    numbers = strict.get("/metrics").text
    assert 'status="500"' not in numbers
    assert "dog" not in "".join(strict.log) + numbers
    assert "evil" not in "".join(strict.log) + numbers
