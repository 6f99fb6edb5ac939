"""The special ids of every vocabulary, and the symbols that it may reserve."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""`<pad> <unk> <s> </s>`: fixed ids. `<s>` starts the decoder, `</s>` ends both sides.

Hugging Face Marian and CTranslate2 take all four from their configuration, so any fixed choice can be carried there.
"""

MASKED = -1000.0
"""The logit bias of a token that a model cannot write: its probability is 0 in every arithmetic."""

RESERVED = tuple(f"\uff5f{number}\uff60" for number in range(12))
"""Subwords `｟0｠` … `｟11｠` that stand for what must not be translated. A vocabulary has all of them or none."""

TERM_MARKS = ("\uff5f:\uff60", "\uff5f;\uff60")
"""Subwords around the translation that a source word is to have, which stands behind it: `dog ｟:｠ Köter ｟;｠`."""
