"""A page with the model itself inside: it translates as you type, offline, and every number can be looked at."""

from __future__ import annotations

from undivided.look.live.kinds import KINDS, check_kind
from undivided.look.live.page import check_live, render_live
from undivided.look.live.weights import STORED, Stored, measure_loss

__all__ = ["KINDS", "STORED", "Stored", "check_kind", "check_live", "measure_loss", "render_live"]
