"""Templates of requests: texts, lists and tables in which {name} stands for a value.

A value is put into a text once and never read again, and the whole is encoded afterwards, as JSON
or as a form, by what encodes such things: a message that says `"}` or `{secret.token}` or `&to=`
says just that.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from chronos_runtime.errors import ConfigError

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_BRACES = {"{{": "{", "}}": "}"}


def check_template(where: str, template: Any, names: Collection[str]) -> None:
    """Refuse a template with a placeholder that nothing stands behind.

    >>> check_template("sms.body", {"to": ["{to}"], "text": "{txt}"}, ["to", "text"])
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.ConfigError: sms.body: {txt} stands for nothing; there are {text}, {to}
    """
    if isinstance(template, dict):
        for key, value in template.items():
            check_template(where, key, ())
            check_template(where, value, names)
    elif isinstance(template, list):
        for value in template:
            check_template(where, value, names)
    elif isinstance(template, str):
        for part in _PART.finditer(template):
            if part[0] in _BRACES or part[1] in names:
                continue
            known = ", ".join(f"{{{name}}}" for name in sorted(names)) or "none here"
            raise ConfigError(f"{where}: {part[0]} stands for nothing; there are {known}")


def render(template: Any, values: Mapping[str, str]) -> Any:
    """The template with its values; checked before, so that no name is missing.

    >>> render({"to": ["{to}"], "text": "{{{text}}}", "n": 1}, {"to": "+1", "text": "{to}"})
    {'to': ['+1'], 'text': '{{to}}', 'n': 1}
    """
    if isinstance(template, dict):
        return {key: render(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [render(value, values) for value in template]
    if isinstance(template, str):
        return _PART.sub(lambda part: _BRACES.get(part[0]) or values[part[1]], template)
    return template


def names_in(template: Any) -> set[str]:
    """The placeholders of a template.

    >>> sorted(names_in({"to": ["{to}"], "text": "{{no}} {text}"}))
    ['text', 'to']
    """
    if isinstance(template, dict):
        template = list(template.values())
    if isinstance(template, list):
        return set().union(*map(names_in, template))
    if not isinstance(template, str):
        return set()
    return {part[1] for part in _PART.finditer(template) if part[1]}


def encode_json(tree: Any) -> bytes:
    """A rendered template as JSON.

    >>> encode_json({"text": 'say "}'})
    b'{"text":"say \\\\"}"}'
    """
    return msgspec.json.encode(tree)


def encode_form(tree: Mapping[str, Any]) -> bytes:
    """A rendered template as a form; a list stands there once for each of its members.

    >>> encode_form({"To": "+1", "Body": "a&To=+2"})
    b'To=%2B1&Body=a%26To%3D%2B2'
    """
    return urlencode(tree, doseq=True, encoding="utf-8").encode("ascii")
