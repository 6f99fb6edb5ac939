"""Who may ask, and how often: API keys, of which only hashes are kept, and rates for each key or address."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from undivided.config.serve import ServeConfig
from undivided.core.errors import InputError
from undivided.core.files import open_append
from undivided.serve.errors import Refusal

KNOWN_CLIENTS = 50_000
"""Clients whose rate is remembered; the one that was quiet for longest is forgotten first."""

WINDOWS = {"minute": 60.0, "hour": 3600.0, "day": 86400.0}


@dataclass(frozen=True)
class ApiKey:
    """A key by its hash, and the limits that it has of its own; −1 is the server's."""

    digest: str
    req_limit: int = -1
    char_limit: int = -1


def hash_key(key: str) -> str:
    """Keys are random and long, so a fast hash does."""
    return hashlib.sha256(key.encode("utf-8", errors="replace")).hexdigest()


def read_keys(path: str) -> list[ApiKey]:
    """Keys from a file: a line for each, `SHA256 [requests a minute] [characters]`, and after `#` whose it is."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}; make a key: undivided serve --new-key NAME") from None
    keys = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        limits = words[1:]
        if (
            len(words[0]) != 64
            or set(words[0].lower()) - set("0123456789abcdef")
            or len(limits) > 2
            or not all(map(_is_number, limits))
        ):
            raise InputError(f"{path}, line {number}: expected SHA256 [requests a minute] [characters] [# name]")
        keys.append(ApiKey(words[0].lower(), *map(int, limits)))
    if not keys:
        raise InputError(f"{path}: holds no key; make one: undivided serve --new-key NAME --api-keys-db-path {path}")
    return keys


def _is_number(word: str) -> bool:
    return word.lstrip("-").isdecimal() and len(word) < 12


def add_key(path: str, name: str) -> str:
    """Make a key, add its hash to a file, and return it: it is nowhere else."""
    key = secrets.token_urlsafe(32)
    with open_append(Path(path)) as out:
        out.write(f"{hash_key(key)}  # {' '.join(name.split())[:80]}\n".encode())
    return key


@dataclass
class _Bucket:
    """What a client may still ask for in a window of time."""

    left: float
    seen: float


@dataclass
class Access:
    """Checks keys and counts requests."""

    config: ServeConfig
    keys: list[ApiKey] = field(default_factory=list)
    _clients: OrderedDict[tuple[str, str], _Bucket] = field(default_factory=OrderedDict)

    def find_key(self, given: object) -> ApiKey | None:
        """The key that a client gave, in the same time whichever it is; `Refusal` where there must be one and is none."""
        if not self.keys:
            return None
        if not given or not isinstance(given, str):
            link = self.config.get_api_key_link
            raise Refusal(
                400, f"Visit {link} to get an API key" if link else "Please contact the server operator to get an API key"
            )
        digest, found = hash_key(given), None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None:
            raise Refusal(403, "Invalid API key")
        return found

    def char_limit(self, key: ApiKey | None) -> int:
        """Most characters of a text; −1 is any."""
        return key.char_limit if key is not None and key.char_limit >= 0 else self.config.char_limit

    def count(self, key: ApiKey | None, address: str, cost: int = 1) -> None:
        """Count requests of a client; `Refusal` with the time to wait where they are too many."""
        client = key.digest if key is not None else shorten_address(address)
        own = key.req_limit if key is not None else -1
        limits = {
            "minute": own if own >= 0 else self.config.req_limit,
            "hour": self.config.hourly_req_limit,
            "day": self.config.daily_req_limit,
        }
        for window, limit in limits.items():
            if limit >= 0:
                self._spend(client, window, limit, cost)

    def _spend(self, client: str, window: str, limit: int, cost: int) -> None:
        now, seconds = time.monotonic(), WINDOWS[window]
        bucket = self._clients.setdefault((client, window), _Bucket(limit, now))
        self._clients.move_to_end((client, window))
        while len(self._clients) > KNOWN_CLIENTS:
            self._clients.popitem(last=False)
        bucket.left = min(float(limit), bucket.left + (now - bucket.seen) * limit / seconds)
        bucket.seen = now
        # A request that costs more than a whole window is served from a full one.
        if bucket.left < min(cost, limit) or not limit:
            wait = (min(cost, limit) - bucket.left) * seconds / limit if limit else seconds
            raise Refusal(429, f"Slowdown: {limit} per 1 {window}", retry_after=wait)
        bucket.left -= cost


def shorten_address(address: str) -> str:
    """The part of an address that one client has: of IPv6 the network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else str(found)
