import random

import numpy as np
import pytest

from undivided.config import TokensConfig
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.core.random import random_bits
from undivided.data.subwords import FEW, Subwords, Tokenizer, vocab_size_for

TEXT = [
    ("The dog runs in the rain <s> again, <0x41> and again.", "Der Hund läuft im Regen ▁ und läuft."),
    ("An old house by the river; the river is old.", "Ein altes Haus am Fluss; der Fluss ist alt."),
    ("It costs 20 € today… <unk> </s> <pad>", "Es kostet heute 20 €…  \u2009schmal"),
    ("東京は大きい。", "Tokio ist groß."),
] * 20
KINDS = [(kind, joint) for kind in ("bpe", "unigram") for joint in (True, False)]


@pytest.fixture(scope="module", params=KINDS, ids=[f"{kind}-{'joint' if joint else 'separate'}" for kind, joint in KINDS])
def tokenizer(request):
    kind, joint = request.param
    return Tokenizer.learn(lambda: TEXT, TokensConfig(kind=kind, joint=joint, vocab_size=360), len(TEXT), seed=1)


def odd_texts(count: int) -> list[str]:
    """Seeded nonsense: all planes, combining marks, controls, spaces, and what looks like sentencepiece's own marks."""
    chance = random.Random(7)
    parts = ["▁", " ", "  ", "\t", "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "<0xE2>", "dog", "Hund", "ﬁ", "한", "\u1112\u1161"]
    parts += ["e\u0301", "\u0301", "\u200d", "👩\u200d👧", "🏳\ufe0f\u200d🌈", "\ufffd", "\ufeff", "\u2028", "\x85", "\r", "\0"]
    parts += ["\U0010fffd", "\U0010fffc", "\uffff", "\U0001ffff"]

    def piece() -> str:
        if chance.random() < 0.6:
            return chance.choice(parts)
        code = chance.choice([chance.randrange(1, 0x20), chance.randrange(0x20, 0x300), chance.randrange(0x300, 0x110000)])
        return "x" if 0xD800 <= code < 0xE000 else chr(code)

    return ["".join(piece() for _ in range(chance.randrange(12))) for _ in range(count)]


def test_every_text_comes_back_exactly(tokenizer):
    texts = [*odd_texts(1500), "", " ", "   ", " a", "a ", "▁", "▁▁ ▁", "a\nb", "\n", *(text for pair in TEXT[:4] for text in pair)]
    for side in (tokenizer.source, tokenizer.target):
        rows = side.encode(texts)
        assert side.decode(rows) == texts
        assert all(row[-1] == EOS and not {PAD, UNK, BOS, EOS} & set(row[:-1]) for row in rows)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("most", [1 << 18, 60])
def test_a_corpus_is_encoded_as_its_lines_are(tokenizer, monkeypatch, dtype, most):
    """Whatever is remembered of words, and also where it must be forgotten."""
    monkeypatch.setattr("undivided.data.subwords.MAX_CACHED_WORDS", most)
    texts = [*odd_texts(600), "", " ", "a  b", " a", "a ", "▁ a", "long" * 11 + " a", *(text for pair in TEXT for text in pair)]
    for side in (tokenizer.source, tokenizer.target):
        for part in (texts[:200], texts, texts[::-1]):
            rows = side.encode_corpus(part, np.dtype(dtype), 2)
            assert [np.frombuffer(row, dtype).tolist() for row in rows] == side.encode(part)
        assert side.encode_corpus([], np.dtype(dtype)) == []


def test_every_character_comes_back(tokenizer):
    codes = [*range(0x3000), *range(0xD7F0, 0xD800), *range(0xE000, 0xE010), *range(0xFE00, 0x10400), *range(0x1F300, 0x1F700)]
    codes += [*range(0x10FF00, 0x110000)]
    texts = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    wrong = [text for text, back in zip(texts, tokenizer.source.decode(tokenizer.source.encode(texts))) if back != text]
    assert wrong == []


def test_what_looks_like_a_byte_piece_stays_text():
    lines = [("<0x41> <0x42> <0x41>", "<0x41>")] * 100
    subwords = Tokenizer.learn(lambda: lines, TokensConfig(vocab_size=400), len(lines), seed=1).source
    assert subwords.decode(subwords.encode(["<0x41>", "A<0x42>"])) == ["<0x41>", "A<0x42>"]


def test_threads_change_nothing(tokenizer):
    texts = odd_texts(200)
    assert tokenizer.source.encode(texts) == tokenizer.source.encode(texts, threads=4)


@pytest.mark.parametrize("count", [2, FEW + 1])
def test_lone_surrogate_is_refused(tokenizer, count):
    with pytest.raises(InputError, match="surrogate"):
        tokenizer.source.encode(["fine"] * (count - 1) + ["half \ud83d"])


def test_few_texts_are_as_many_and_start_no_threads(tokenizer, monkeypatch):
    """A list makes sentencepiece start threads, for which the event loop of a server would wait."""
    texts = odd_texts(2 * FEW)
    ids = tokenizer.source.encode(texts)
    decoded = tokenizer.source.decode([[], *ids])
    real = tokenizer.source._processor

    class OneByOne:
        def encode(self, given, **more):
            assert isinstance(given, str)
            return real.encode(given, **more)

        def decode(self, given):
            assert not any(isinstance(each, list) for each in given)
            return real.decode(given)

        def __getattr__(self, name):
            return getattr(real, name)

    monkeypatch.setattr(tokenizer.source, "_processor", OneByOne())
    for start in range(0, len(texts), FEW // 2):
        part = slice(start, start + FEW // 2)
        assert tokenizer.source.encode(texts[part]) == ids[part]
        assert tokenizer.source.decode([[], *ids[part]]) == ["", *decoded[1:][part]]


def test_special_ids(tokenizer):
    assert tokenizer.source.pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert tokenizer.source.decode([[BOS, *tokenizer.source.encode(["dog"])[0], PAD]]) == ["dog"]


def test_save_and_load(tokenizer, tmp_path):
    names = tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    assert loaded.joint == tokenizer.joint
    assert [side.model for side in (loaded.source, loaded.target)] == [tokenizer.source.model, tokenizer.target.model]


def test_learning_is_repeatable():
    config = TokensConfig(vocab_size=360)
    first, second = (Tokenizer.learn(lambda: TEXT, config, len(TEXT), seed=1) for _ in range(2))
    assert first.source.model == second.source.model


def test_missing_and_damaged_models(tmp_path):
    with pytest.raises(InputError, match=r"source\.model is missing"):
        Tokenizer.load(tmp_path)
    (tmp_path / "subwords.model").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="damaged"):
        Tokenizer.load(tmp_path)
    with pytest.raises(InputError):
        Subwords(b"")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("pair", [("a", "b"), ("A dog.", "Ein Hund.")])
def test_tiny_text_shrinks_the_vocabulary(kind, pair):
    tokenizer = Tokenizer.learn(lambda: [pair], TokensConfig(kind=kind, vocab_size=8000), 1, seed=1)
    assert 260 < len(tokenizer.source) < 320
    assert tokenizer.source.decode(tokenizer.source.encode(list(pair))) == list(pair)


def test_too_small_vocabularies_are_refused():
    with pytest.raises(InputError, match="100 is less than 260"):
        Tokenizer.learn(lambda: TEXT, TokensConfig(vocab_size=100), len(TEXT), seed=1)
    many = [("".join(chr(0x4E00 + n) for n in range(500)), "x")]
    with pytest.raises(InputError, match="vocab_size"):
        Tokenizer.learn(lambda: many, TokensConfig(vocab_size=300, character_coverage=1.0), 1, seed=1)


def test_vocabulary_suits_the_corpus():
    sizes = [vocab_size_for(pairs) for pairs in (100, 10_000, 30_000, 200_000, 1_000_000, 5_000_000, 36_000_000)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 37_000


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sampling_is_a_function_of_the_seed(kind):
    config = TokensConfig(kind=kind, vocab_size=360, dropout=0.2)
    subwords = Tokenizer.learn(lambda: TEXT, config, len(TEXT), seed=1).source
    texts = [pair[0] for pair in TEXT[:40]] + odd_texts(40)
    rows = subwords.encode(texts)
    seeds, others = random_bits(len(rows), 5), random_bits(len(rows), 6)
    first, other = subwords.sample(rows, config, seeds), subwords.sample(rows, config, others)
    assert first != other
    assert first != rows
    assert subwords.sample(rows, config, seeds) == first
    assert subwords.decode(first) == subwords.decode(other) == texts
    assert all(row[-1] == EOS for row in first)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sampling_is_the_same_in_another_process(kind, python, tmp_path):
    """A run that goes on after a crash must see the subwords it would have seen."""
    config = TokensConfig(kind=kind, vocab_size=360, dropout=0.3)
    tokenizer = Tokenizer.learn(lambda: TEXT, config, len(TEXT), seed=1)
    tokenizer.save(tmp_path)
    code = (
        "import sys; from pathlib import Path; from undivided.data.subwords import Tokenizer\n"
        "from undivided.core.random import random_bits\n"
        "from undivided.config import TokensConfig\n"
        "side = Tokenizer.load(Path(sys.argv[1])).source\n"
        f"print(side.sample(side.encode([sys.argv[2]] * 20), TokensConfig(kind={kind!r}, dropout=0.3), random_bits(20, 5)))"
    )
    text = TEXT[1][0]
    here = tokenizer.source.sample(tokenizer.source.encode([text] * 20), config, random_bits(20, 5))
    assert python(code, tmp_path, text).strip() == str(here)


def test_own_bpe_without_dropout_is_sentencepiece_bpe():
    subwords = Tokenizer.learn(lambda: TEXT, TokensConfig(vocab_size=360), len(TEXT), seed=1).source
    rows = subwords.encode([text for pair in TEXT for text in pair])
    assert subwords.sample(rows, TokensConfig(dropout=0.0), random_bits(len(rows), 1)) == rows


def test_more_dropout_makes_more_and_shorter_subwords():
    learned = Tokenizer.learn(lambda: TEXT, TokensConfig(vocab_size=360), len(TEXT), seed=1).source.model
    rows = Subwords(learned).encode([pair[0] for pair in TEXT])
    seeds = random_bits(len(rows), 1)
    counts = [sum(map(len, Subwords(learned).sample(rows, TokensConfig(dropout=share), seeds))) for share in (0.0, 0.1, 0.5, 0.99)]
    assert counts == sorted(counts)
    assert counts[0] < counts[1] < counts[2]
