#!/usr/bin/env python3
"""Compares random templates with Python's jinja2: compare_with_jinja2.py PATH_OF_jinja_render_lines [COUNT [SEED]].

Run by hand. Prints the templates that differ in text, or in whether they fail; exits 1 if there are any."""
import copy
import json
import random
import subprocess
import sys
import warnings

from make_cases import VARIABLES, environment, render

LITERALS = ["0", "1", "2", "-1", "3", "7", "1.5", "-2.5", "0.0", "1e20", "true", "false", "none", "''", "'a'", "'abc'", "'A b,c '",
            "'é👋x'", "'  x '", "'3'", "[]", "[1, 2, 3]", "['b', 'A', 'c']", "{}", "{'a': 1, 'b': [2]}", "(1, 'x')", "()",
            "n", "x", "text", "word", "numbers", "nested", "users", "messages", "missing", "nothing"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "**"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "list", "first", "last", "join", "join(', ')", "sort",
           "sort(reverse=true)", "unique|list", "reverse|list", "string", "int", "float", "round", "round(1)", "abs", "tojson",
           "tojson(indent=1)", "default('d')", "default('d', true)", "sum", "min", "max", "dictsort", "items|list", "safe", "e",
           "map('upper')|list", "map('string')|join", "select|list", "select('string')|list", "reject('none')|list",
           "map(attribute='a')|list", "selectattr('name')|list", "batch(2)|list", "slice(2)|list", "replace('a', 'zz')",
           "indent", "truncate(5, true, '')", "wordcount", "center(9)", "urlencode", "groupby(0)", "count", "attr('upper')"]
METHODS = [".upper()", ".strip()", ".lstrip('a ')", ".split()", ".split(',')", ".split('b', 1)", ".rsplit(none, 1)", ".title()",
           ".startswith('a')", ".endswith(('c', ' '))", ".replace('b', '')", ".find('b')", ".rfind('')", ".count('a')", ".join(['1', '2'])",
           ".get('a')", ".get('q', 2)", ".keys()|list", ".values()|list", ".items()", ".index(2)", ".count(1)", ".isdigit()", ".isalpha()",
           ".islower()", ".splitlines()", ".partition('b')", ".zfill(5)", ".center(8, '*')", ".a", ".b", "['a']", "[0]", "[-1]", "[1:]", "[::-1]",
           "[:-1]", "[1:3]", "[::2]", ".x", ".append(1)", ".format(1)", ".swapcase()", ".capitalize()", ".expandtabs()", ".name", "[5:1:-1]"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true",
         "odd", "even", "divisibleby 2", "lower", "upper", "in [1, 'a']", "eq 1", "gt 1", "callable", "sameas none"]
FORMATS = ["'%s'", "'%d|'", "'%5.1f'", "'%r'", "'%-4s|'", "'%x'", "'%s-%s'", "'%05d'", "'%+d'", "'%g'"]


def expression(r, depth):
    pick = r.random()
    if depth <= 0 or pick < 0.2:
        return r.choice(LITERALS)
    inner = lambda: expression(r, depth - 1)
    if pick < 0.45:
        return f"({inner()} {r.choice(BINARY)} {inner()})"
    if pick < 0.62:
        return f"({inner()}|{r.choice(FILTERS)})"
    if pick < 0.78:
        return f"({inner()}){r.choice(METHODS)}"
    if pick < 0.84:
        return f"({inner()} is {r.choice(['', 'not '])}{r.choice(TESTS)})"
    if pick < 0.88:
        return f"({inner()} if {inner()} else {inner()})"
    if pick < 0.91:
        return f"(not {inner()})"
    if pick < 0.94:
        return f"({r.choice(FORMATS)} % {inner()})"
    return r.choice(["[{0}, {1}]", "({0}, {1})", "{{'k': {0}, 'm': {1}}}", "({0})[{1}]"]).format(inner(), inner())


def block(r, depth):
    pick = r.random()
    e = lambda: expression(r, 2)
    space = lambda: r.choice(["", " ", "\n", "\n  ", " \n\n", "x"])
    tag = lambda s: "{%" + r.choice(["", "", "-", "+"]) + f" {s} " + r.choice(["", "", "-", "+"]) + "%}"
    body = lambda: "".join(space() + block(r, depth - 1) for _ in range(r.randint(0, 2))) + space()
    if depth <= 0 or pick < 0.3:
        return "{{" + r.choice(["", "-"]) + f" {e()} " + r.choice(["", "-"]) + "}}"
    if pick < 0.45:
        return tag(f"if {e()}") + body() + (tag(f"elif {e()}") + body()) * r.randint(0, 1) + (tag("else") + body()) + tag("endif")
    if pick < 0.65:
        head = r.choice(["for v in {}", "for v in {} if v", "for k, v in {}"]).format(e())
        inside = body() + r.choice(["{{ loop.index }}", "{{ loop.last }}{{ loop.revindex }}", "{{ v }}", "{{ loop.nextitem }}",
                                    "{% if loop.index > 1 %}{% break %}{% endif %}", "{% if loop.first %}{% continue %}{% endif %}|"])
        return tag(head) + inside + body() + (tag("else") + body()) * r.randint(0, 1) + tag("endfor")
    if pick < 0.78:
        return tag(f"set {r.choice(['v', 'w', 'n', 'v, w'])} = {e()}") + "{{ v }}{{ w }}"
    if pick < 0.84:
        return tag("set w") + body() + tag("endset") + "[{{ w }}]"
    if pick < 0.9:
        return tag("macro m(a, b=v)") + body() + "{{ a }}{{ b }}" + tag("endmacro") + "{{ m(" + e() + ") }}"
    if pick < 0.94:
        return tag("filter " + r.choice(["upper", "trim", "replace('a', 'b')"])) + body() + tag("endfilter")
    if pick < 0.97:
        return tag("raw") + space() + "{{ x }}" + space() + tag("endraw")
    return "{#" + r.choice(["", "-"]) + " c " + r.choice(["", "-", "+"]) + "#}"


def known(want, got):
    """Differences that are meant: Python's own objects, and what no chat template does with a range."""
    text, error = want.get("text", ""), got.get("error", "")
    return (" at 0x" in text.lower() or "<bound method" in text  # addresses
            or "not subscriptable" in error or "'slice'" in error  # jinja2 folds slices of constants to undefined
            or "complex numbers" in error or "integer too large" in error
            or "range object" in error or "_GroupTuple" in error)


def main():
    program = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    r = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    templates = ["{{ " + expression(r, 3) + " }}" if r.random() < 0.6 else block(r, 3) + "\n" + block(r, 2) for _ in range(count)]
    lines = "".join(json.dumps({"template": t, "variables": VARIABLES}) + "\n" for t in templates)
    replies = subprocess.run([program], input=lines, capture_output=True, text=True).stdout.split("\n")[:-1]
    warnings.simplefilter("ignore")
    env, differ, failed = environment(), 0, 0
    assert len(replies) == count, f"{len(replies)} replies; the template after them ended the program"
    for template, line in zip(templates, replies):
        want, got = render(env, template, copy.deepcopy(VARIABLES)), json.loads(line)
        failed += "error" in want
        if want.get("text") != got.get("text") and not known(want, got):
            differ += 1
            print(json.dumps(template, ensure_ascii=False), "\n  want", want, "\n  got ", got)
    print(count, "templates,", failed, "fail in jinja2,", differ, "differ")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
