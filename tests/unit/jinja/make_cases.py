#!/usr/bin/env python3
"""Writes cases.json: small templates and what Python's jinja2, set up as transformers set it up, makes of them.

Needs `pip install jinja2`. The templates are in cases.txt, one a line (with \\n for a newline), so that a case is
easy to add; lines beginning with "##" are headings. A "~" in front says that the error's wording is our own."""
import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Héllo <b>&\n\"you\" 你好 👋"},
        {"role": "assistant", "content": None,
         "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "b": [1.5, True, None]}}}]},
    ],
    "n": 7, "big": 18446744073709551615, "x": -2.5, "yes": True, "no": False, "nothing": None,
    "text": "  The quick brown fox\tjumps  ", "word": "straße", "empty": "",
    "numbers": [3, 1, 2], "nested": {"b": {"c": [10, 20]}, "a": 1, "items": "shadowed", "Z": None},
    "users": [{"name": "ann", "age": 30}, {"name": "Bob", "age": 25}, {"name": "cy", "age": 30, "on": True}],
}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime(2024, 7, 26).strftime(f)
    return env


def render(env, template, variables):
    """{"text": ...} or {"error": ...}; syntax errors come with their line."""
    try:
        return {"text": env.from_string(template).render(variables)}
    except jinja2.TemplateSyntaxError as e:
        return {"error": str(e.message), "line": e.lineno}
    except Exception as e:
        return {"error": str(e)}


def main():
    env = environment()
    cases = []
    for line in (HERE / "cases.txt").read_text().splitlines():
        if not line or line.startswith("##"):
            continue
        template = line.removeprefix("~").replace("\\n", "\n")
        result = render(env, template, VARIABLES)
        if line.startswith("~"):
            result["own_wording"] = True
        cases.append({"template": template, **result})
    out = {"variables": VARIABLES, "cases": cases}
    (HERE / "cases.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "of them errors")


if __name__ == "__main__":
    main()
