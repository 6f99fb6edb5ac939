"""Heads named by what they do on a corpus, what each is worth, and the word alignments that the best of them give."""

from __future__ import annotations

from undivided.look.heads.report import HeadReport, Report, report

__all__ = ["HeadReport", "Report", "report"]
