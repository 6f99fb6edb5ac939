"""Byte-level BPE and WordPiece give the ids that `transformers`' tokenizers give, whatever the text."""

import json
import random
import sys
import unicodedata

import numpy as np
import pytest

from undivided.core.errors import InputError
from undivided.core.ids import EOS, UNK
from undivided.data.listed_subwords import BYTE_BPE, SPECIAL, WORDPIECE, ListedSubwords, write_subwords
from undivided.data.subwords import Tokenizer

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

SAMPLES = [
    "Don't they'll I'VE we're  two   spaces\t\ttab ", " leading", "trailing  ", "\n\nline\r\n",
    "1234 3.14 ½ ²³ Ⅻ ٣٤٥ 一二三", "", " ", "   ", "a'sb's 'S 's",
    "naïve café ÀÉÎÕÜ ñandú İstanbul ıssız ΣΊΣΥΦΟΣ ΑΣ ὈΔΥΣΣΕΎΣ", "Ǆ ﬁ ﬀ ß ẞ",
    "日本語のテキスト 한국어 텍스트 中文字符", "שָׁלוֹם עולם مَرْحَبًا हिन्दी ไทย", "😀👩‍👩‍👧‍👦🏳️‍🌈 🇩🇪",
    "a\u0301e\u0308 a\u200bb\u00adc\ufeffd\ufffde", "x\x00y\x1cz\x85w\x7f\x0b\x0cv",
    "\u00a0nbsp\u3000ideographic\u2028line\u2029para\u1680ogham",
    "$100+5<6=7>^`|~ «guillemets» …—–‘’“” 。、！？", "a" * 150, "word" * 30 + ".", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𠀁𪚥 🀄",
    "<|endoftext|x> [CLS] [SEP x] </s> <unk>", "##ing # ##", "e\u0301\u0323\u0301 q\u0323\u0307",
    "〮〯 한\u302e글",
]  # fmt: skip


def odd_lines(count, seed, only):
    """Lines of characters from everywhere: of each line most are from one block, as in text."""
    chance = random.Random(seed)
    known = [code for code in range(sys.maxunicode + 1) if only(chr(code))]
    common = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJ 0123456789 .,;:!?'\"-  \t éüñßçàø αβγδΣς абвгд"
    lines = []
    for _ in range(count):
        begin = chance.randrange(len(known))
        block = known[begin : begin + 60]
        parts = [chance.choice((common, common, block, known)) for _ in range(chance.randrange(1, 60))]
        picked = [chance.choice(part) for part in parts]
        lines.append("".join(each if isinstance(each, str) else chr(each) for each in picked))
    return lines


def is_settled(character):
    """Whether a character is in the older versions of Unicode that `tokenizers` knows, and is no half of one."""
    return unicodedata.category(character) not in ("Cs", "Cn") and unicodedata.ucd_3_2_0.category(character) != "Cn"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A byte-level BPE, trained on odd lines, as `transformers` holds it; and as ours."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"])
    model.train_from_iterator([*SAMPLES * 5, *odd_lines(400, 1, is_settled)], trainer)
    found = json.loads(model.to_str())["model"]
    pieces = sorted(found["vocab"], key=found["vocab"].get)
    merges = [tuple(pair) for pair in found["merges"]]
    theirs = transformers.GPT2Tokenizer(vocab=found["vocab"], merges=merges)
    return theirs, pieces, merges


def ours_of(pieces, merges, **changes):
    settings = {"merges": merges, "prefix_space": False} | changes
    return ListedSubwords(write_subwords(BYTE_BPE, [*SPECIAL, *pieces], settings))


def test_byte_level_bpe_gives_their_ids_and_the_same_text_back(gpt2):
    theirs, pieces, merges = gpt2
    ours = ours_of(pieces, merges)
    lines = [line for line in [*SAMPLES, *odd_lines(2500, 2, is_settled)] if "<|endoftext|>" not in line]
    wanted = theirs(lines)["input_ids"]
    found = [[token - len(SPECIAL) for token in row[:-1]] for row in ours.encode(lines)]
    wrong = [(line, one, other) for line, one, other in zip(lines, found, wanted) if one != other]
    assert not wrong, (len(wrong), wrong[:3])
    assert ours.decode(ours.encode(lines)) == lines
    assert all(row[-1] == EOS for row in ours.encode(lines[:5]))


def test_a_space_before_the_first_word(gpt2):
    _, pieces, merges = gpt2
    theirs = transformers.GPT2Tokenizer(vocab={piece: at for at, piece in enumerate(pieces)}, merges=merges, add_prefix_space=True)
    ours = ours_of(pieces, merges, prefix_space=True)
    lines = ["Hello there", " Hello", "\tHello", "é", "don't"]
    assert [[token - len(SPECIAL) for token in row[:-1]] for row in ours.encode(lines)] == theirs(lines)["input_ids"]


def test_a_word_of_a_million_letters_takes_no_hour(gpt2):
    _, pieces, merges = gpt2
    ours = ours_of(pieces, merges)
    (row,) = ours.encode(["word" * 50_000])
    assert ours.decode([row]) == ["word" * 50_000]


def learn_wordpiece(lower_case):
    model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    model.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower_case)
    model.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=4000, special_tokens=special)
    model.train_from_iterator([*SAMPLES * 5, *odd_lines(3000, 3, is_settled)], trainer)
    vocab = model.get_vocab()
    return sorted(vocab, key=vocab.get)


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("chinese", [True, False])
def test_wordpiece_gives_their_ids(lower_case, chinese):
    pieces = learn_wordpiece(lower_case)
    vocab = {piece: at for at, piece in enumerate(pieces)}
    theirs = transformers.BertTokenizer(vocab=vocab, do_lower_case=lower_case, tokenize_chinese_chars=chinese)
    settings = {"lower_case": lower_case, "strip_accents": lower_case, "split_chinese": chinese, "mask": "[MASK]"}
    ours = ListedSubwords(write_subwords(WORDPIECE, [*SPECIAL, *pieces[4:]], settings))
    lines = [line for line in [*SAMPLES, *odd_lines(2500, 4, is_settled)] if "[SEP]" not in line and "[CLS]" not in line]
    lines += ["Paris is [MASK].", "[MASK][MASK] x"]
    wanted = theirs(lines, add_special_tokens=False)["input_ids"]
    found = [row[:-1] for row in ours.encode(lines)]
    wrong = [(line, one, other) for line, one, other in zip(lines, found, wanted) if one != other]
    assert not wrong, (len(wrong), wrong[:3])
    shares = [token == UNK for row in found for token in row]
    assert 0.01 < sum(shares) / len(shares) < 0.6


def test_wordpiece_reads_as_text_again():
    pieces = [*SPECIAL, "[MASK]", "un", "##divid", "##ed", "is", "."]
    settings = {"lower_case": True, "strip_accents": True, "split_chinese": True, "mask": "[MASK]"}
    ours = ListedSubwords(write_subwords(WORDPIECE, pieces, settings))
    assert ours.mask == 4
    assert ours.encode(["Undivided is [MASK]."]) == [[5, 6, 7, 8, 4, 9, EOS]]
    assert ours.decode([[5, 6, 7, 8, 9]]) == ["undivided is ."]
    assert ours.encode_corpus(["is"], np.dtype(np.uint16)) == [np.array([8, EOS], np.uint16).tobytes()]


def test_they_are_saved_and_loaded(gpt2, tmp_path):
    _, pieces, merges = gpt2
    ours = ours_of(pieces, merges)
    assert Tokenizer(ours).save(tmp_path) == ["subwords.json"]
    again = Tokenizer.load(tmp_path)
    assert again.joint
    assert again.source.encode(SAMPLES) == ours.encode(SAMPLES)
    with pytest.raises(InputError, match="lone surrogate"):
        ours.encode(["\ud800"])


GOOD = {"kind": WORDPIECE, "pieces": [*SPECIAL, "a"], "lower_case": True, "strip_accents": True, "split_chinese": True, "mask": ""}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "morphemes"}, "unknown kind 'morphemes'"),
        ({"pieces": ["a"]}, "first pieces"),
        ({"pieces": [*SPECIAL, "a", "a"]}, "twice"),
        ({"pieces": [*SPECIAL, 7]}, "no list of texts"),
        ({"pieces": None}, "no list of texts"),
        ({"pieces": [*SPECIAL, "\ud800"]}, "damaged"),
        ({"lower_case": "yes"}, "true or false"),
        ({"mask": "[MASK]"}, "not among its pieces"),
        ({"kind": BYTE_BPE, "merges": [], "prefix_space": False}, "lacks 255 of the 256 bytes"),
        ({"kind": BYTE_BPE, "merges": [["a"]], "prefix_space": False}, "damaged"),
    ],
)
def test_damaged_lists_are_refused_in_one_line(change, said, tmp_path):
    (tmp_path / "subwords.json").write_text(json.dumps(GOOD | change))
    with pytest.raises(InputError, match=said) as raised:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(raised.value)
    assert "subwords.json" in str(raised.value)


def test_what_is_no_list_is_refused(tmp_path):
    for content in (b"", b"[]", b"{}", b"[" * 100_000, b"\xff", b'{"kind": "WordPiece"'):
        (tmp_path / "subwords.json").write_bytes(content)
        with pytest.raises(InputError, match="damaged"):
            Tokenizer.load(tmp_path)
