"""Text ↔ ids: subword models are saved and loaded; every text is decoded exactly as it was. [paper 5.1]"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress
from pathlib import Path

import numpy as np
import sentencepiece

from undivided.config import TokensConfig
from undivided.core.errors import InputError
from undivided.core.files import read_bounded
from undivided.core.ids import BOS, EOS, PAD, RESERVED, TERM_MARKS, UNK
from undivided.core.random import mix_bits
from undivided.data.subword_learning import LEAST_PROTECTED, MIN_VOCAB_SIZE, learn_subwords, vocab_size_for
from undivided.data.subword_proto import BARRED_SCORE, read_parts
from undivided.data.subword_sampling import SPACE_MARK, WordVariants

MAX_MODEL_BYTES = 64 << 20
"""Most bytes of a subword model: more than a hundred times that of 37,000 subwords."""

FEW = 64
"""Texts that sentencepiece is given one by one: for a list it starts threads, which takes far longer on a busy machine."""

MAX_CACHED_WORDS, MAX_CACHED_LENGTH = 1 << 18, 40
"""Words whose ids are cached while a corpus is encoded, and most characters of such a word."""


class Subwords:
    """One subword model: text → ids → the same text."""

    suffix = ".model"
    """Of its file in a folder."""
    mask = UNK
    """What hides a token that is to be guessed; `<unk>` occurs in no text, since bytes spell every character."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            # Not `model_proto=` in the constructor: that silently accepts an empty model.
            self._processor.LoadFromSerializedProto(model)
            special = [self._processor.pad_id(), self._processor.unk_id(), self._processor.bos_id(), self._processor.eos_id()]
            pieces = [self._processor.id_to_piece(token) for token in range(len(self._processor))]
            "".join(pieces).encode("utf-8")
        except (RuntimeError, ValueError, IndexError) as error:
            raise InputError(f"the subword model is damaged: it cannot be read by sentencepiece: {error}") from None
        if special != [PAD, UNK, BOS, EOS]:
            raise InputError(f"the subword model has the special ids {special}, expected {[PAD, UNK, BOS, EOS]}")
        self._begins_word = [token <= EOS or piece.startswith(SPACE_MARK) for token, piece in enumerate(pieces)]
        self.unknown = frozenset(token for token in range(len(pieces)) if token == UNK or self._processor.is_byte(token))
        """The ids that spell what no subword has letters for."""
        reserved = {piece: token for token, piece in enumerate(pieces) if piece in RESERVED}
        self.symbols = {piece: reserved[piece] for piece in RESERVED} if len(reserved) == len(RESERVED) else {}
        """The symbols for protected text with their ids; none in subwords that were learned without them."""
        self.has_term_marks = set(TERM_MARKS) <= set(pieces)
        self._variants: WordVariants | None = None
        self._cache: dict[str, bytes] = {}
        self._cached_dtype: np.dtype | None = None
        self._language_codes = {piece: token for token, piece in enumerate(pieces) if _is_language_code(piece)}
        self._language: int | None = None
        self._barred = frozenset(token for token in range(len(pieces)) if self._processor.get_score(token) <= BARRED_SCORE)
        self._parts = read_parts(model)
        self._mark_ids = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE_MARK.encode()]

    @classmethod
    def load(cls, path: Path) -> Subwords:
        """Read a subword model from a file."""
        try:
            return cls(read_bounded(path, MAX_MODEL_BYTES))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def __len__(self) -> int:
        return len(self._processor)

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Ids of each text, ending with `</s>`."""
        try:
            rows: list[list[int]]
            if len(texts) <= FEW:
                rows = [self._processor.encode(text, add_eos=True) for text in texts]
            else:
                rows = self._processor.encode(list(texts), num_threads=threads, add_eos=True)
        except (UnicodeEncodeError, TypeError, RuntimeError):
            raise InputError("the text holds a lone surrogate (half a character) and is not valid Unicode") from None
        for place, text in enumerate(texts):
            if self._parts.spells_bytes and SPACE_MARK in text:
                rows[place] = self._encode_with_marks(text)
            elif (code := text[: text.find("<<") + 2]) in self._language_codes:
                rows[place] = [self._language_codes[code], *self._encode_known(text[len(code) :])]
            elif UNK in rows[place] or self._language is not None:
                rows[place] = [*filter(None, [self._language]), *self._encode_known(text)]
        return rows

    def _encode_known(self, text: str) -> list[int]:
        """Encode a text of an imported model: what its sentencepiece model does not know, its vocabulary may know by name."""
        ids = map(self._processor.piece_to_id, self._processor.encode(text, out_type=str))
        return [*(UNK if token <= EOS or token in self._barred else token for token in ids), EOS]

    @property
    def languages(self) -> list[str]:
        """The codes of the languages that a model for several translates into; none of most models."""
        return [piece[2:-2] for piece in self._language_codes]

    def choose_language(self, code: str) -> None:
        """From now on every text begins with this language's token, unless it names another; without a code, none does."""
        if code and f">>{code}<<" not in self._language_codes:
            known = f"known: {', '.join(self.languages[:50])}" if self.languages else "it translates into one language"
            raise InputError(f"{code!r}: the model has no such target language; {known}")
        self._language = self._language_codes[f">>{code}<<"] if code else None

    def encode_corpus(self, texts: Sequence[str], dtype: np.dtype, threads: int = 1) -> list[bytes]:
        """The same as `encode`, as bytes of numbers of type `dtype`, and faster for much text.

        No subword spans a space, and words repeat: the ids of each word are cached.
        """
        if not (self._parts.spells_bytes and self._parts.keeps_text):
            # An imported model may change spaces, or have subwords that span them.
            return [np.array(row, dtype).tobytes() for row in self.encode(texts, threads)]
        split = [text.split(" ") for text in texts]
        by_words = [_has_plain_words(text) for text in texts]
        wanted = set(chain.from_iterable(compress(split, by_words)))
        if len(self._cache) + len(wanted) > MAX_CACHED_WORDS or self._cached_dtype is not dtype:
            self._cache, self._cached_dtype = {}, dtype
        new = list(wanted - self._cache.keys())
        rows = zip(new, self.encode(new, threads), strict=True)
        self._cache.update((word, np.array(row[:-1], dtype).tobytes()) for word, row in rows)
        others = iter(self.encode([text for text, plain in zip(texts, by_words, strict=True) if not plain], threads))
        known, end = self._cache.__getitem__, np.array([EOS], dtype).tobytes()
        found = [
            b"".join(map(known, words)) + end if plain else np.array(next(others), dtype).tobytes()
            for words, plain in zip(split, by_words, strict=True)
        ]
        for word in new:
            if len(word) > MAX_CACHED_LENGTH:
                del self._cache[word]
        return found

    def sample(self, rows: Sequence[Sequence[int]], config: TokensConfig, seeds: np.ndarray) -> list[list[int]]:
        """Another segmentation of each text, which depends on its 64-bit seed only, on every machine.

        sentencepiece's own sampling differs from process to process, so a run could not be resumed exactly.
        """
        if self._variants is None:
            self._variants = WordVariants(self._processor, config)
        choose = self._variants.choose
        words = [list(self._words(row)) for row in rows]
        counts = np.array([len(row) for row in words])
        within_row = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        spread = within_row.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        chance = iter(mix_bits(np.repeat(seeds, counts) + spread).tolist())
        return [[token for word in row for token in choose(word, next(chance))] for row in words]

    def _words(self, row: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The tokens of a row, word by word: a word starts at a piece that starts with a space."""
        word: list[int] = []
        for token in row:
            if word and self._begins_word[token]:
                yield tuple(word)
                word = []
            word.append(token)
        if word:
            yield tuple(word)

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids, without special ids."""
        known = [[token for token in row if token > EOS] for row in rows]
        if len(known) <= FEW:
            return [self._processor.decode(row) if row else "" for row in known]
        return list(self._processor.decode(known))

    def encode_places(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text without `</s>`, and of each id the characters that it stands for, from a place up to another."""
        # Not as `proto`, for which sentencepiece needs another package.
        found = self._processor.encode(text, return_type="offset_mapping")
        # Of the pieces that spell a character in bytes, only the last one has its place.
        places: list[tuple[int, int]] = []
        end = len(text)
        for begin, until in reversed(found["offsets"]):
            end = until if until > begin else end
            places.append((begin, end))
        return list(found["ids"]), places[::-1]

    def pieces(self, row: Sequence[int]) -> list[str]:
        """The subwords of a row of ids as text."""
        return [self._processor.id_to_piece(int(token)) for token in row]

    def _encode_with_marks(self, text: str) -> list[int]:
        """Encode `▁` as its three bytes, by way of a character that occurs in neither text nor vocabulary."""
        for code in range(0x10FFFD, 0xF0000, -1):
            stand_in = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in chr(code).encode()]
            ids: list[int] = self._processor.encode(chr(code))
            if chr(code) not in text and ids[-4:] == stand_in:
                break
        ids = self._processor.encode(text.replace(SPACE_MARK, chr(code)), add_eos=True)
        result: list[int] = []
        for token in ids:
            result.append(token)
            if result[-4:] == stand_in:
                result[-4:] = self._mark_ids
        return result


def _is_language_code(piece: str) -> bool:
    """Whether a piece names a language to translate into."""
    return piece.startswith(">>") and piece.endswith("<<") and len(piece) > 4


def _has_plain_words(text: str) -> bool:
    """Whether a text is words with one space between them."""
    return bool(text) and "  " not in text and text[0] != " " != text[-1] and SPACE_MARK not in text


def to_one_line(text: str) -> str:
    """A text without line breaks: whatever a model writes, an output is one line."""
    return re.sub(r"[\r\n]+", " ", text)


class Tokenizer:
    """The subword models of both languages: one joint model, or one for each."""

    def __init__(self, source: Subwords, target: Subwords | None = None) -> None:
        self.source = source
        self.target = target if target is not None else source

    @property
    def joint(self) -> bool:
        """Whether both languages share one vocabulary; imported models may still split each with a model of its own."""
        if self.source is self.target:
            return True
        sides = (
            [side.pieces(range(len(side))) for side in (self.source, self.target)] if len(self.source) == len(self.target) else []
        )
        return bool(sides) and sides[0] == sides[1]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols for protected text, which both sides have; or none."""
        return tuple(self.source.symbols) if self.target.symbols else ()

    def save(self, folder: Path) -> list[str]:
        """Write the subword model(s) into a folder; returns the file names."""
        if self.source is self.target:
            parts = {f"subwords{self.source.suffix}": self.source}
        else:
            parts = {"source.model": self.source, "target.model": self.target}
        for name, subwords in parts.items():
            (folder / name).write_bytes(subwords.model)
        return list(parts)

    @classmethod
    def load(cls, folder: Path, language_code: str = "") -> Tokenizer:
        """Read what `save` wrote; texts to translate begin with the code of a language, if there is one."""
        if (folder / "subwords.json").exists():
            from undivided.data.listed_subwords import ListedSubwords

            return cls(ListedSubwords.load(folder / "subwords.json"))
        if (folder / "subwords.model").exists():
            parts = [folder / "subwords.model"]
        else:
            parts = [folder / "source.model", folder / "target.model"]
            for part in parts:
                if not part.exists():
                    raise InputError(f"{folder}: holds no subword model ({part.name} is missing)")
        found = cls(*map(Subwords.load, parts))
        if language_code:
            if found.source is found.target:
                found = cls(found.source, Subwords(found.source.model))
            found.source.choose_language(language_code)
        return found

    @classmethod
    def learn(
        cls, read: Callable[[], Iterable[tuple[str, ...]]], config: TokensConfig, count: int, seed: int, protect: bool = False
    ) -> Tokenizer:
        """Learn subwords from the texts, or pairs of texts, that `read` yields; `count` is their number.

        With `protect`, a vocabulary that is large enough has the symbols for protected text, and those for terms if it is to.
        """
        size = config.vocab_size or vocab_size_for(count)
        wanted = (*RESERVED, *(TERM_MARKS if config.terms else ()))
        symbols = wanted if protect and size >= LEAST_PROTECTED else ()
        if size < MIN_VOCAB_SIZE:
            raise InputError(f"tokens.vocab_size: {size} is less than {MIN_VOCAB_SIZE}, the number of special ids and bytes")
        if config.joint:
            return cls(Subwords(learn_subwords((text for pair in read() for text in pair), config, size, seed, symbols)))
        sides = (learn_subwords((pair[side] for pair in read()), config, size, seed, symbols) for side in (0, 1))
        return cls(*(Subwords(side) for side in sides))
