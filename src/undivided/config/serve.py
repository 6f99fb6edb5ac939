"""What a server allows and how it batches. Settings that LibreTranslate has too have its names and variables (`LT_…`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from undivided.config.settings import Values, iter_settings, setting

PREFIX = "LT_"

NOT_OURS = frozenset({"METRICS"})
"""Names of LibreTranslate that mean something else here: metrics are always there."""


@dataclass(frozen=True)
class ServeConfig:
    """Limits are on unless they are set to −1."""

    host: str = setting("127.0.0.1", "address to listen on", flags=("--host",))
    port: int = setting(5000, "port to listen on; 0 is any that is free", flags=("--port",), at_least=0, below=65536)
    workers: int = setting(1, "processes on this port, each with the models", flags=("--workers",), at_least=1, below=257)
    ray: str = setting("", "translate by replicas on a Ray cluster: its address, or local", flags=("--ray",))
    replicas: int = setting(
        2, "replicas of each model on that cluster, each with --threads processors", flags=("--replicas",), at_least=1, below=4097
    )
    insecure: bool = setting(False, "listen on an address that others reach, without API keys", flags=("--insecure",))
    allowed_hosts: list[str] = setting(
        [],
        "names that requests may use for this server (Host header); addresses always may",
        flags=("--allowed-hosts",),
    )
    cors_origins: list[str] = setting(
        [], "web origins whose pages may call this server, such as https://example.org; * is any", flags=("--cors-origins",)
    )
    trust_forwarded_for: bool = setting(
        False, "take the client's address from X-Forwarded-For: only behind a proxy that sets it", flags=("--trust-forwarded-for",)
    )
    url_prefix: str = setting("", "path under which everything is served, such as /translate", flags=("--url-prefix",))

    api_keys: bool = setting(False, "ask every client for an API key", flags=("--api-keys",))
    api_keys_db_path: str = setting(
        "api-keys.txt", "file of hashed API keys; `--new-key NAME` adds one", flags=("--api-keys-db-path",)
    )
    get_api_key_link: str = setting("", "where a client gets an API key; errors name it", flags=("--get-api-key-link",))

    char_limit: int = setting(5000, "most characters of a text; -1 is any", flags=("--char-limit",), at_least=-1)
    batch_limit: int = setting(50, "most texts in a request; -1 is any", flags=("--batch-limit",), at_least=-1)
    alternatives_limit: int = setting(
        5, "most alternatives beside a translation; -1 is any", flags=("--alternatives-limit",), at_least=-1, below=101
    )
    req_limit: int = setting(
        1200,
        "most requests in a minute for a key or address; -1 is any; a list counts as its texts",
        flags=("--req-limit",),
        at_least=-1,
    )
    hourly_req_limit: int = setting(-1, "the same in an hour", flags=("--hourly-req-limit",), at_least=-1)
    daily_req_limit: int = setting(-1, "the same in a day", flags=("--daily-req-limit",), at_least=-1)
    body_limit: int = setting(
        1_000_000, "most bytes of a request, files aside", flags=("--body-limit",), at_least=1000, below=1 << 40
    )
    file_limit: int = setting(10_000_000, "most bytes of a file", flags=("--file-limit",), at_least=1000, below=1 << 40)
    connection_limit: int = setting(1000, "most connections at once, for each worker", flags=("--connection-limit",), at_least=1)

    batch_tokens: int = setting(1024, "source subwords that are translated together", flags=("--batch-tokens",), at_least=1)
    batch_delay: float = setting(
        0.005, "seconds that a request waits for others to share its batch", flags=("--batch-delay",), at_least=0.0, at_most=10.0
    )
    queue_tokens: int = setting(
        8192,
        "source subwords of all requests that wait or are under way; one beyond them gets a 429",
        flags=("--queue-tokens",),
        at_least=1,
    )
    queue_requests: int = setting(
        20, "requests that wait or are under way; half a batch and a quarter second of work are always accepted",
        flags=("--queue-requests",), at_least=1,
    )  # fmt: skip
    queue_seconds: float = setting(
        2.5,
        "the same, in seconds of work as measured; half a batch is always accepted",
        flags=("--queue-seconds",),
        at_least=0.0,
        at_most=3600.0,
    )
    request_timeout: float = setting(
        30.0, "seconds that a request may take, files aside", flags=("--request-timeout",), at_least=0.1, at_most=86400.0
    )
    body_timeout: float = setting(
        10.0, "seconds in which headers and body of a request must arrive", flags=("--body-timeout",), at_least=0.1, at_most=3600.0
    )
    file_timeout: float = setting(600.0, "seconds that a file may take", flags=("--file-timeout",), at_least=1.0, at_most=86400.0)
    documents: int = setting(2, "files translated at once; others get a 429", flags=("--documents",), at_least=1, below=257)
    cache_characters: int = setting(
        4_000_000, "characters of translations that are kept for when the same is asked again; 0 keeps none",
        flags=("--cache-characters",), at_least=0,
    )  # fmt: skip
    drain_timeout: float = setting(
        30.0, "seconds that requests may still take after SIGTERM", flags=("--drain-timeout",), at_least=0.0, at_most=3600.0
    )

    load_only: str = setting("", "serve only models of these languages, such as en,de", flags=("--load-only",))
    suggestions: bool = setting(False, "accept corrections (POST /suggest)", flags=("--suggestions",))
    suggestions_file: str = setting("suggestions.tmx", "TMX file to which they are added", flags=("--suggestions-file",))
    disable_files_translation: bool = setting(False, "refuse files", flags=("--disable-files-translation",))
    disable_web_ui: bool = setting(False, "no page at /", flags=("--disable-web-ui",))
    metrics_auth_token: str = setting("", "what /metrics asks for: Authorization: Bearer TEXT", flags=("--metrics-auth-token",))
    frontend_language_source: str = setting("auto", "source language of the page", flags=("--frontend-language-source",))
    frontend_language_target: str = setting(
        "locale", "target language of the page; locale is the browser's", flags=("--frontend-language-target",)
    )
    frontend_timeout: int = setting(
        500, "milliseconds after the last key before the page translates", flags=("--frontend-timeout",), at_least=0
    )


def environment_settings(environment: Mapping[str, str] | None = None) -> tuple[Values, list[str]]:
    """The settings that `LT_…` variables give, and the variables that have no effect here."""
    environment = os.environ if environment is None else environment
    known = {name.upper(): name for name, _, _ in iter_settings(ServeConfig)}
    given = {name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX) and value}
    unknown = [f"{PREFIX}{name}" for name in given if name not in known and name not in NOT_OURS]
    return {known[name]: value for name, value in given.items() if name in known}, sorted(unknown)
