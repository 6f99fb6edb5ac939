"""Translation memories, catalogues and folders as a corpus to check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from undivided.config import CorpusFiles
from undivided.data.corpus import corpus_name
from undivided.formats.contract import DocumentOptions
from undivided.formats.pairs import read_document_pairs


class DocumentCorpus:
    """What `--train` reads from documents, pair by pair."""

    def __init__(self, files: CorpusFiles, source_lang: str, target_lang: str) -> None:
        self.files, self.uneven = files, ""
        self.name = corpus_name(files)
        self._options = DocumentOptions(source_lang, target_lang)
        found = read_document_pairs(files.source, files.target, self._options)
        self.source_lang, self.target_lang = found.source_lang, found.target_lang

    def pairs(self) -> Iterator[tuple[bytes, bytes | None]]:
        """All pairs, from the start."""
        for source, target in read_document_pairs(self.files.source, self.files.target, self._options).pairs:
            yield source.encode("utf-8", "replace"), target.encode("utf-8", "replace")

    def output_names(self) -> tuple[str, str]:
        """Two text files, whatever the document was."""
        name = Path(self.files.source).name or "corpus"
        return f"{name}.{self.source_lang or 'source'}", f"{name}.{self.target_lang or 'target'}"
