"""What the tests of the live pages share: a worker of the test's own, waiting, and axe-core."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parents[2] / ".venv" / "web" / "node_modules" / "axe-core" / "axe.min.js"

START = """async () => {
    const text = (id) => document.getElementById(id)?.textContent;
    const worker = new Worker(URL.createObjectURL(new Blob([text('live-engine')], { type: 'text/javascript' })));
    const plain = (value) => ArrayBuffer.isView(value) ? Array.from(value) : Array.isArray(value) ? value.map(plain)
        : value && typeof value === 'object' ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)])) : value;
    let asked = 0;
    window.ask = (ask, about = {}) => new Promise((finish, fail) => {
        const id = ++asked, parts = [];
        worker.onerror = (event) => fail(new Error(event.message));
        worker.addEventListener('message', ({ data }) => {
            if (data.id !== id) return;
            if (data.error) fail(new Error(data.error));
            else if (data.part === 'done' || data.part === 'cancelled') finish(parts);
            else parts.push([data.part, plain(data.value)]);
        });
        worker.postMessage({ id, ask, ...about });
    });
    await ask('load', { about: JSON.parse(text('live-about')), weights: window.weights });
}"""


def settings(config: Any) -> dict[str, Any]:
    """The settings of a search as a page has them."""
    names = ("beam_size", "length_penalty", "length_norm", "max_extra", "no_repeat_ngram", "temperature")
    return {name: getattr(config, name) for name in names}


def wait_for(tab: Any, selector: str, wanted: list[Any], read: str = "each => each.textContent") -> None:
    """Poll from outside: the policy of the page forbids what a function that waits inside it would need."""
    for _ in range(300):
        found = tab.eval_on_selector_all(selector, f"all => all.map({read})")
        if found == wanted:
            return
        time.sleep(0.1)
    assert found == wanted


def check_with_axe(tab: Any) -> None:
    """Fail where axe-core finds something serious."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make axe-core (needs npm)")
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    found = tab.evaluate("async () => (await axe.run(document, { resultTypes: ['violations'] })).violations")
    grave = [(each["id"], each["nodes"][0]["html"][:120]) for each in found if each["impact"] in ("serious", "critical")]
    assert grave == [], grave
