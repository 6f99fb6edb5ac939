"""A look as one self-contained HTML page: style, script and data in a single file, no network."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import re
from importlib.resources import files
from typing import Any

import numpy as np

from undivided.look.result import FATES, USES, Look, Numbers

PAGE = files("undivided.look") / "page"

MODULES = (
    "korean.js", "words.js", "store.js", "data.js", "dom.js", "colour.js", "heat.js", "lines.js", "multiples.js", "attention.js",
    "tree.js", "decoding.js", "whatif.js", "space.js", "view.js",
)  # fmt: skip
"""The JavaScript modules, each after those that it imports."""


def render_page(look: Look) -> str:
    """The whole page."""
    parts = {
        "title": html.escape(f"{look.text} — a look inside", quote=True),
        "style": read_part("look.css"),
        "script": "\n".join(inline_module(read_part(name)) for name in MODULES),
        "data": embed_json(pack(look) | page_texts(look)),
    }
    return re.sub(r"%(title|style|script|data)%", lambda found: parts[found[1]], read_part("page.html"))


def page_texts(look: Look) -> dict[str, Any]:
    """Texts for the page that are not part of the look: names of uses and fates, and a remark on this model."""
    return {"uses": USES, "fates": FATES, "remark": look.remark}


def render_frame(look: Look, height: int = 900) -> str:
    """The page in a frame for a notebook, so that their styles do not mix."""
    inside = html.escape(render_page(look), quote=True)
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe title="A look inside" sandbox="allow-scripts" style="{style}" srcdoc="{inside}"></iframe>'


def read_part(name: str) -> str:
    """One file of the page."""
    return (PAGE / name).read_text(encoding="utf-8")


def inline_module(module: str) -> str:
    """A module as a part of one script, without imports and exports. A server can serve the modules as they are."""
    without = re.sub(r'^import \{[^}]*\} from "[./a-z]+\.js";\n', "", module, flags=re.MULTILINE)
    return re.sub(r"^export (?=(?:const|async function|function|class) )", "", without, flags=re.MULTILINE)


def embed_json(values: Any) -> str:
    """JSON that is safe inside a script element, whatever text it holds."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def pack(value: Any) -> Any:
    """A result as plain values, with arrays of 16 bits per number: 65,535 even steps from `low` to `high`, one of them 0."""
    if dataclasses.is_dataclass(value):
        return {item.name: pack(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return _pack_array(value)
    if isinstance(value, tuple | list):
        return [pack(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _pack_array(array: Numbers) -> dict[str, Any]:
    high = float(abs(array).max()) if array.size else 0.0
    low = -high if array.size and array.min() < 0 else 0.0
    levels = np.round((array.astype(np.float64) - low) / ((high - low) or 1.0) * 65534).astype("<u2")
    return {"shape": list(array.shape), "low": low, "high": high, "levels": base64.b64encode(levels.tobytes()).decode()}
