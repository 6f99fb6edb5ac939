"""What requests and answers look like, for the documentation and for checks of requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Text = Annotated[str, StringConstraints(min_length=1)]
Place = Annotated[list[int], Field(min_length=2, max_length=2)]
"""Start and end."""


class Error(BaseModel):
    """An error, in one sentence."""

    error: str


class Detection(BaseModel):
    """A language and how certain it is, in percent."""

    confidence: int = Field(ge=0, le=100)
    language: str


class Language(BaseModel):
    """A language and those it can be translated to."""

    code: str
    name: str
    targets: list[str]


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]


class Ready(BaseModel):
    """The models are loaded."""

    status: Literal["ready"]
    models: list[str]


class LibreTranslated(BaseModel):
    """LibreTranslate's answer: texts for a text, lists for a list."""

    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    via: str | None = None


class TranslatedFile(BaseModel):
    """Where a translated file is, and what became of its segments."""

    translatedFileUrl: str  # noqa: N815
    translated: int
    left: int
    remarks: list[str]


class FrontendLanguage(BaseModel):
    """A language of the page."""

    code: str
    name: str


class FrontendSettings(BaseModel):
    """What a page needs to know of this server."""

    charLimit: int  # noqa: N815
    alternativesLimit: int  # noqa: N815
    frontendTimeout: int  # noqa: N815
    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    language: dict[str, FrontendLanguage]


class Suggested(BaseModel):
    """Whether a correction was kept."""

    success: bool


class TranslateRequest(BaseModel):
    """A request of our own API."""

    model_config = ConfigDict(extra="forbid", strict=True)

    q: Text | list[str] = Field(description="A text, or a list of texts.")
    source: str = Field("auto", description="A language, or auto.")
    target: str
    format: Literal["text", "html"] = "text"
    n_best: int = Field(1, ge=1, le=101, description="Translations of each text; the server may allow fewer.")
    beam_size: int | None = Field(None, ge=1, le=16)
    prefix: str | None = Field(None, max_length=1000, description="What the translation of q, one line, must begin with.")
    glossary: dict[str, str] | None = Field(None, max_length=200, description="Words and what they are translated into.")
    alignments: bool = False
    stream: bool = False
    api_key: str | None = None


class VerdictModel(BaseModel):
    """Whether a translation is sound and, if not, why."""

    name: str
    reason: str
    is_sound: bool


class Alternative(BaseModel):
    """Another translation."""

    text: str
    score: float


class SegmentModel(BaseModel):
    """A piece of a text that was translated by itself; places count characters."""

    source: Place
    target: Place
    score: float
    verdict: VerdictModel


class Link(BaseModel):
    """Two words that translate each other."""

    source: Place
    target: Place


class TranslationModel(BaseModel):
    """The translation of one text."""

    text: str
    score: float
    verdict: VerdictModel
    alternatives: list[Alternative]
    segments: list[SegmentModel]
    alignments: list[Link] | None


class TranslateAnswer(BaseModel):
    """The translations of all texts, in order."""

    source: str
    target: str
    via: str | None
    detected: Detection | None
    translations: list[TranslationModel]


class LookRequest(BaseModel):
    """What to look at."""

    model_config = ConfigDict(extra="forbid", strict=True)

    q: Text
    source: str
    target: str
    piece: int = Field(0, ge=0)
    prefix: list[int] = Field([], max_length=1000)
    translation: str | None = Field(None, min_length=1, description="The translation to look at; by default the model's own.")
    step: int | None = Field(None, ge=0)
    choices: int = Field(5, ge=1, le=10)
    heads: bool = False
    api_key: str | None = None


class LookAnswer(BaseModel):
    """A look; see docs/serving.md."""

    source: str
    target: str
    pieces: list[str]
    piece: int
    text: str
    translation: str
    score: float
    finished: bool
    tokens: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    words: dict[str, list[Place] | None]
    attention: list[list[float]]
    heads: dict[str, Any] | None
    choices: list[dict[str, Any]] | None
    remark: str


class DeepLTranslation(BaseModel):
    """A translation as DeepL answers it."""

    detected_source_language: str
    text: str
    billed_characters: int


class DeepLAnswer(BaseModel):
    """DeepL's answer."""

    translations: list[DeepLTranslation]


class DeepLLanguage(BaseModel):
    """A language as DeepL lists it."""

    language: str
    name: str
    supports_formality: bool | None = None


class DeepLUsage(BaseModel):
    """Characters translated."""

    character_count: int
    character_limit: int


class ChatAnswer(BaseModel):
    """OpenAI's answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, int]


class ChatError(BaseModel):
    """OpenAI's error; a sentence where the request did not get as far."""

    error: dict[str, Any] | str


class ChatModels(BaseModel):
    """OpenAI's list of models."""

    object: Literal["list"]
    data: list[dict[str, Any]]


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": text}
    for status, text in {
        400: "The request is wrong.",
        403: "The API key is wrong, or this is turned off.",
        404: "There is no such thing.",
        408: "The request arrived too slowly.",
        413: "The request is too large.",
        421: "The Host header names another server.",
        429: "Too many requests; Retry-After says when to come back.",
        503: "It took too long, or the server is not ready.",
    }.items()
}


CHAT_ERRORS: dict[int | str, dict[str, Any]] = {status: each | {"model": ChatError} for status, each in ERRORS.items()}


def streamed(kind: str, errors: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """Answers that may also come as a stream of another content type."""
    return errors | {200: {"content": {kind: {"schema": {}}}}}


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """A JSON body in the documentation."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def form_body(properties: dict[str, Any], required: list[str], *kinds: str) -> dict[str, Any]:
    """A body that may be JSON or a form, in the documentation."""
    schema = {"type": "object", "properties": properties, "required": required}
    kinds = kinds or ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
