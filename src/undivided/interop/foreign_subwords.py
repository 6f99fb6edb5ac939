"""How a GPT-2 or BERT folder of `transformers` splits text: a sentencepiece model, byte-level BPE or WordPiece, in our order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from undivided.core.errors import InputError
from undivided.core.files import read_bounded
from undivided.core.ids import EOS
from undivided.data.listed_subwords import BYTE_BPE, WORDPIECE, ListedSubwords, write_subwords
from undivided.data.subword_proto import read_pieces
from undivided.data.subwords import MAX_MODEL_BYTES, Subwords
from undivided.interop.foreign import Reasons, plain_file, read_object
from undivided.interop.vocabulary import NO_ROW, SPECIAL, SpecialIds, Vocabulary, make_subwords, order_vocabulary

SENTENCEPIECE = ("spiece.model", "tokenizer.model", "sentencepiece.model", "sentencepiece.bpe.model")
BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
"""What BERT calls its special tokens, unless `tokenizer_config.json` says otherwise."""


class ForeignSubwords(NamedTuple):
    """Subwords with our ids, what these are in the foreign model, and the files that were read."""

    subwords: Subwords
    vocabulary: Vocabulary
    files: list[Path]


def read_foreign_subwords(folder: Path, theirs: Mapping[str, Any]) -> ForeignSubwords:
    """The subwords of a folder of `transformers`."""
    size = int(theirs["vocab_size"])
    path = next((folder / name for name in SENTENCEPIECE if (folder / name).exists()), None)
    if theirs["model_type"] == "gpt2" and path is not None:
        return _sentencepiece(plain_file(folder, path.name), theirs, size)
    read = _byte_bpe if theirs["model_type"] == "gpt2" else _wordpiece
    try:
        return read(_Folder(folder), theirs, size)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{folder}: no tokenizer of the expected form: {type(error).__name__}: {error}") from None


class _Folder:
    """The files of a tokenizer: its settings, and its table apart or in `tokenizer.json`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, list[Path]()
        self.config = self.read("tokenizer_config.json") if self.has("tokenizer_config.json") else {}
        self.whole = self.read("tokenizer.json") if self.has("tokenizer.json") else {}
        self.model: Mapping[str, Any] = self.whole.get("model") or {}

    def has(self, name: str) -> bool:
        return (self.folder / name).exists() or (self.folder / name).is_symlink()

    def read(self, name: str) -> dict[str, Any]:
        self.files.append(plain_file(self.folder, name))
        return read_object(self.files[-1])

    def lines(self, name: str) -> list[str]:
        self.files.append(plain_file(self.folder, name))
        try:
            return read_bounded(self.files[-1], MAX_MODEL_BYTES).decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{self.files[-1]}: damaged, it is not UTF-8: {error}") from None

    def refuse_others(self, kind: str, known: set[str], stages: Mapping[str, str]) -> None:
        """Refuse a tokenizer that does more to text than the two known kinds do."""
        reasons = Reasons(f"{self.folder}: its text is split in a way that is unknown here")
        found = str(self.model.get("type", kind))
        reasons.check(found == kind, f"by {found}, not {kind}")
        for stage, wanted in stages.items() if self.whole else ():
            part = self.whole.get(stage)
            name = str(part.get("type")) if isinstance(part, dict) else "nothing"
            reasons.check(name == wanted, f"its {stage} is {name}, not {wanted}")
        added = [each["content"] for each in self.whole.get("added_tokens") or [] if not each.get("special")]
        added += list(self.read("added_tokens.json")) if self.has("added_tokens.json") else []
        more = [piece for piece in added if piece not in known]
        reasons.check(not more, f"{len(more)} tokens were added to its vocabulary, such as {more[:1]}")
        reasons.refuse()

    def special(self, name: str, usual: str) -> str:
        """What a special token is called."""
        said = self.config.get(f"{name}_token")
        return str(said.get("content") if isinstance(said, dict) else said or usual)

    def flag(self, name: str, usual: bool, stage: str, there: str) -> bool:
        """A setting of the tokenizer: of `tokenizer.json`, which is what runs, before `tokenizer_config.json`."""
        part = self.whole.get(stage)
        found = part.get(there) if isinstance(part, dict) else None
        found = self.config.get(name) if found is None else found
        return usual if found is None else bool(found)


def _sentencepiece(path: Path, theirs: Mapping[str, Any], size: int) -> ForeignSubwords:
    content = read_bounded(path, MAX_MODEL_BYTES)
    pieces = [piece.text for piece in read_pieces(content)]
    _check_size(path, pieces, size)
    pad, start, eos = (_known(theirs, name, size) for name in ("pad", "bos", "eos"))
    if eos == NO_ROW or "<unk>" not in pieces:
        raise InputError(f"{path}: the vocabulary has no <unk>, or config.json names no eos_token_id")
    special = SpecialIds(pad, pieces.index("<unk>"), eos if start == NO_ROW else start, eos)
    vocabulary = order_vocabulary([*pieces, *_unused(len(pieces), size)], special)
    return ForeignSubwords(make_subwords(content, vocabulary), vocabulary, [path])


def _byte_bpe(folder: _Folder, theirs: Mapping[str, Any], size: int) -> ForeignSubwords:
    """GPT-2: `vocab.json` and `merges.txt`, or both in `tokenizer.json`. Bytes spell everything, so that it has no `<unk>`."""
    apart = folder.has("vocab.json")
    table = folder.read("vocab.json") if apart else folder.model["vocab"]
    eos, start = _known(theirs, "eos", size), _known(theirs, "bos", size)
    pieces = _by_id(table, size, folder.folder)
    known = {pieces[token] for token in (eos, start) if 0 <= token < len(pieces)}
    folder.refuse_others("BPE", known, {"normalizer": "nothing", "pre_tokenizer": "ByteLevel"})
    if eos == NO_ROW:
        raise InputError(f"{folder.folder}: config.json names no eos_token_id")
    if apart:
        rows = [line for line in folder.lines("merges.txt") if line and not line.startswith("#version")]
    else:
        rows = folder.model["merges"]
    merges = [each.split(" ") if isinstance(each, str) else list(each) for each in rows]
    if not all(len(each) == 2 and all(isinstance(part, str) for part in each) for each in merges):
        raise InputError(f"{folder.folder}: damaged, not every merge is a pair of pieces")
    made = {left + right for left, right in merges}
    whole = [piece for piece in pieces if len(piece) > 1 and piece not in known and not piece.startswith("<")]
    if sum(piece not in made for piece in whole) > len(whole) // 100:
        raise InputError(f"{folder.folder}: its merges do not make the pieces of its vocabulary; they are incomplete")
    special = SpecialIds(NO_ROW, NO_ROW, eos if start == NO_ROW else start, eos)
    prefix = folder.flag("add_prefix_space", False, "pre_tokenizer", "add_prefix_space")
    return _listed(folder, BYTE_BPE, pieces, special, {"merges": merges, "prefix_space": prefix})


def _wordpiece(folder: _Folder, theirs: Mapping[str, Any], size: int) -> ForeignSubwords:
    """BERT: `vocab.txt`, or the table in `tokenizer.json`."""
    if folder.has("vocab.txt"):
        lines = folder.lines("vocab.txt")
        pieces = [line.removesuffix("\r") for line in (lines[:-1] if not lines[-1] else lines)]
        _check_size(folder.folder / "vocab.txt", pieces, size)
        if len(set(pieces)) < len(pieces):
            raise InputError(f"{folder.folder / 'vocab.txt'}: damaged, a piece is there twice")
        pieces += _unused(len(pieces), size)
    else:
        pieces = _by_id(folder.model["vocab"], size, folder.folder)
    names = {name: folder.special(name, usual) for name, usual in BERT.items()}
    folder.refuse_others("WordPiece", set(names.values()), {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"})
    if folder.model.get("continuing_subword_prefix", "##") != "##":
        raise InputError(f"{folder.folder}: its pieces inside of words do not begin with ##")
    missing = [name for name in names.values() if name not in pieces]
    if missing:
        raise InputError(f"{folder.folder}: its vocabulary has no {', '.join(missing)}")
    pad, unk, start, eos = (pieces.index(names[name]) for name in ("pad", "unk", "cls", "sep"))
    lower = folder.flag("do_lower_case", True, "normalizer", "lowercase")
    settings = {
        "lower_case": lower, "strip_accents": folder.flag("strip_accents", lower, "normalizer", "strip_accents"),
        "split_chinese": folder.flag("tokenize_chinese_chars", True, "normalizer", "handle_chinese_chars"), "mask": names["mask"],
    }  # fmt: skip
    return _listed(folder, WORDPIECE, pieces, SpecialIds(pad, unk, start, eos), settings)


def _listed(folder: _Folder, kind: str, pieces: Sequence[str], special: SpecialIds, settings: Mapping[str, Any]) -> ForeignSubwords:
    vocabulary = order_vocabulary(pieces, special)
    own = [*SPECIAL, *(pieces[row] for row in vocabulary.rows[EOS + 1 :])]
    try:
        return ForeignSubwords(ListedSubwords(write_subwords(kind, own, settings)), vocabulary, folder.files)
    except InputError as error:
        raise InputError(f"{folder.folder}: {error}") from None


def _known(theirs: Mapping[str, Any], name: str, size: int) -> int:
    token = theirs.get(f"{name}_token_id")
    return token if type(token) is int and 0 <= token < size else NO_ROW


def _unused(begin: int, end: int) -> list[str]:
    """Names for rows of the embedding that no piece has."""
    return [f"<unused {token}>" for token in range(begin, end)]


def _check_size(path: Path, pieces: Sequence[str], size: int) -> None:
    if len(pieces) > size:
        raise InputError(f"{path}: has {len(pieces):,} pieces, but config.json says {size:,}")
    if size > 2 * len(pieces) + 1000:
        raise InputError(f"{path}: has {len(pieces):,} pieces; config.json says {size:,}, which is not believable")


def _by_id(table: Any, size: int, folder: Path) -> list[str]:
    """The pieces of a table by their ids; ids that it leaves out get names."""
    if not isinstance(table, dict) or not all(type(token) is int and 0 <= token < size for token in table.values()):
        raise InputError(f"{folder}: damaged: not every piece has an id of its own below vocab_size {size:,}")
    if len(set(table.values())) < len(table):
        raise InputError(f"{folder}: damaged: two pieces have the same id")
    _check_size(folder, list(table), size)
    pieces = _unused(0, size)
    for piece, token in table.items():
        pieces[token] = str(piece)
    return pieces
