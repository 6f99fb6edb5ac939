"""The documentation of the API as a page: plain HTML made from its OpenAPI description, without scripts."""

from __future__ import annotations

import html
import json
from typing import Any


def render_docs(spec: dict[str, Any]) -> str:
    """All routes, with what they take and what they answer."""
    parts = [
        _operation(method, path, operation)
        for path, methods in spec["paths"].items()
        for method, operation in methods.items()
        if isinstance(operation, dict)
    ]
    title = html.escape(f"{spec['info']['title']} {spec['info']['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}: API</title></head><body><h1>{title}</h1><p>{html.escape(spec['info']['description'])} "
        f'The whole description, for programs: <a href="spec">spec</a>.</p>{"".join(parts)}'
        f"<h2>Schemas</h2>{''.join(_schema(*each) for each in spec.get('components', {}).get('schemas', {}).items())}</body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {})
    answers = "".join(
        f"<li>{html.escape(status)}: {html.escape(str(answer.get('description', '')))} {_reference(answer)}</li>"
        for status, answer in operation.get("responses", {}).items()
    )
    takes = "".join(f"<h3>{html.escape(kind)}</h3>{_json(content.get('schema', {}))}" for kind, content in body.items())
    name = html.escape(f"{method.upper()} {path}")
    return f"<h2>{name}</h2><p>{html.escape(operation.get('description', ''))}</p>{takes}<ul>{answers}</ul>"


def _reference(answer: dict[str, Any]) -> str:
    """Links to the schemas that an answer names."""
    text = json.dumps(answer.get("content", {}))
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    return " ".join(f'<a href="#{html.escape(name)}">{html.escape(name)}</a>' for name in sorted(names))


def _schema(name: str, schema: dict[str, Any]) -> str:
    return f'<h3 id="{html.escape(name)}">{html.escape(name)}</h3>{_json(schema)}'


def _json(value: Any) -> str:
    return f"<pre>{html.escape(json.dumps(value, indent=1, ensure_ascii=False))}</pre>"
