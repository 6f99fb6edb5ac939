"""Everything that routes share: the models, the queue, the cache, who may ask, files, looks, numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from starlette.requests import Request

from undivided.config.serve import ServeConfig
from undivided.core.console import Console
from undivided.core.errors import UndividedError
from undivided.serve.access import Access, ApiKey, read_keys
from undivided.serve.cache import TranslationCache
from undivided.serve.detect import Detected, Detector
from undivided.serve.documents import Documents
from undivided.serve.errors import ClientGone, Refusal, missing, too_long
from undivided.serve.files import FileStore
from undivided.serve.look import Looking
from undivided.serve.metrics import Metrics, gauge
from undivided.serve.models import Engine, ModelFolder, Models, Route, load_models
from undivided.serve.texts import Translating

T = TypeVar("T")


class Asked(NamedTuple):
    """The texts and languages of a request, checked."""

    texts: list[str]
    is_list: bool
    route: Route
    detected: Detected | None


class Service:
    """What a server does, without HTTP."""

    def __init__(self, folders: Sequence[ModelFolder], config: ServeConfig, engine: Engine, files: Path, console: Console) -> None:
        self.folders, self.config, self.engine, self.console = folders, config, engine, console
        self.access = Access(config, read_keys(config.api_keys_db_path) if config.api_keys else [])
        self.models: Models = load_models(folders, config, engine, console)
        self.detector = Detector(self.models.codes)
        self.cache = TranslationCache(config.cache_characters)
        self.translating = Translating(self.cache)
        self.documents = Documents(self.translating, config.documents)
        self.files = FileStore(files)
        self.looking = Looking()
        self.metrics = Metrics()
        self.characters = 0
        """Translated by DeepL's API, whose clients ask for it."""
        self._reloading = asyncio.Lock()

    async def reload(self) -> None:
        """Load the models and keys again. Requests that were accepted before are answered by the old ones."""
        async with self._reloading:
            try:
                keys = read_keys(self.config.api_keys_db_path) if self.config.api_keys else []
                models = await asyncio.to_thread(load_models, self.folders, self.config, self.engine, self.console)
                detector = await asyncio.to_thread(Detector, models.codes)
            except (UndividedError, OSError) as error:
                self.console.warn(f"not reloaded, the old models are still served: {error}")
                return
            old, self.models, self.detector, self.access.keys = self.models, models, detector, keys
            self.console.say("reloaded")
        await asyncio.gather(*(model.batcher.close() for model in old.all))

    def check_room(self) -> None:
        """Refuse while no model has room in its queue."""
        self.models.check_room()

    def admit(self, request: Request, api_key: object, cost: int = 1) -> ApiKey | None:
        """Check the key of a request and count it."""
        key = self.access.find_key(api_key)
        self.access.count(key, self.address(request), cost)
        return key

    def address(self, request: Request) -> str:
        """The client's address; behind a proxy that is trusted, the one that it saw."""
        forwarded = request.headers.get("x-forwarded-for", "") if self.config.trust_forwarded_for else ""
        return forwarded.rpartition(",")[2].strip() or (request.client.host if request.client else "unknown")

    def check_texts(self, given: object, key: ApiKey | None) -> tuple[list[str], bool]:
        """The texts of a request, and whether they were given as a list."""
        if given is None or given in ("", []):
            raise missing("q")
        texts = [text for text in (given if isinstance(given, list) else [given]) if isinstance(text, str)]
        if len(texts) < (len(given) if isinstance(given, list) else 1):
            raise Refusal(400, "Invalid request: q must be a text or a list of texts")
        if isinstance(given, list) and 0 <= self.config.batch_limit < len(given):
            raise too_long(len(given), self.config.batch_limit)
        most = self.access.char_limit(key)
        for text in texts:
            if 0 <= most < len(text):
                raise too_long(len(text), most)
        return texts, isinstance(given, list)

    def ask(self, request: Request, q: object, source: object, target: object, api_key: object) -> Asked:
        """Check a request for a translation."""
        key = self.admit(request, api_key, max(1, len(q)) if isinstance(q, list) else 1)
        texts, is_list = self.check_texts(q, key)
        for name, value in (("source", source), ("target", target)):
            if not value:
                raise missing(name)
        detected = None
        if source == "auto":
            detected = self.detector.detect("\n".join(texts))[0]
            source = detected.language
        source, target = self.models.find_language(source), self.models.find_language(target)
        return Asked(texts, is_list, self.models.route(source, target), detected)

    async def finish_in_time(self, request: Request, work: Awaitable[T], seconds: float = 0.0) -> T:
        """Wait for work, but not for ever, and not for a client that has gone: then the work is cancelled."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_wait_gone(request))
        try:
            await asyncio.wait({task, gone}, timeout=seconds or self.config.request_timeout, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise ClientGone
            raise Refusal(503, "Slowdown: the request took too long", retry_after=max(1.0, self.config.request_timeout / 10))
        finally:
            for each in (task, gone):
                each.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    def numbers(self) -> str:
        """All numbers, for Prometheus."""
        models = self.models.all
        lines = list(self.metrics.lines())
        each = [(f'{{model="{model.name}"}}', model.batcher) for model in models]
        for name, help, values in (
            ("batches_total", "Batches translated.", [(label, b.batches) for label, b in each]),
            ("texts_total", "Texts translated in batches.", [(label, b.translated_texts) for label, b in each]),
            ("source_tokens_total", "Source subwords translated.", [(label, b.translated_tokens) for label, b in each]),
            ("cache_hits_total", "Translations taken from the cache.", [("", self.cache.hits)]),
            ("cache_misses_total", "Translations not in the cache.", [("", self.cache.misses)]),
        ):
            lines += gauge(f"undivided_{name}", help, values, "counter")
        lines += gauge("undivided_queued_tokens", "Source subwords that wait.", [(label, b.queued_tokens) for label, b in each])
        lines += gauge("undivided_cache_characters", "Size of the cache.", [("", self.cache.used)])
        return "\n".join(lines) + "\n"

    async def close(self) -> None:
        """Finish what is under way."""
        await asyncio.gather(*(model.batcher.close() for model in self.models.all))
        self.documents.close()
        self.looking.close()
        if self.config.ray:
            from undivided.serve.replicas import disconnect

            await asyncio.to_thread(disconnect)


async def _wait_gone(request: Request) -> None:
    """Wait until the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
