"""What each attention head does on a corpus, how much BLEU it is worth, and word alignments from the best heads."""

from __future__ import annotations

from undivided.look.heads.report import HeadReport, Report, report_heads

__all__ = ["HeadReport", "Report", "report_heads"]
