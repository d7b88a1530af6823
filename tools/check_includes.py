#!/usr/bin/env python3
"""Checks that includes follow the graph of ARCHITECTURE.md: parts know only what lies below them, and nothing knows a backend.

  check_includes.py [ROOT]        checks the repository at ROOT (default: the one this script is in)
  check_includes.py --self-test   checks the checker, on small trees with one wrong include each
"""
import os
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = (".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh", ".inc")
TOP_FOLDERS = ("core", "models", "plugins", "backends", "tools", "tests")
ROOTS = ("", "plugins/abi", "plugins/sdk")  # where an include may start, beside the including file's own folder

# Which parts a part may include, beside itself. A part of core knows the ABI and everything below it.
CORE = {
    "base": [],
    "text": ["base"],
    "formats": ["base", "text"],
    "kv": ["base"],
    "sched": ["base", "text", "formats", "kv"],
    "device": ["base", "text", "formats", "kv", "sched"],
    "sample": ["base", "text", "formats", "kv", "sched", "device"],
    "engine": ["base", "text", "formats", "kv", "sched", "device", "sample"],
}
ALLOWED = {f"core/{part}": ["plugins/abi"] + [f"core/{p}" for p in below] for part, below in CORE.items()}
ALLOWED |= {
    "models": ["plugins/abi"] + [f"core/{part}" for part in CORE],
    "plugins/abi": [],
    "plugins/sdk": ["plugins/abi"],
    "plugins/host": ["plugins/abi", "core/base"],
    "plugins/template": ["plugins/abi", "plugins/sdk"],
    "tests/conformance": ["plugins/abi", "plugins/host", "core/base", "core/device"],
    "tools": ["models", "plugins/abi", "plugins/sdk", "plugins/host", "tests/conformance"] +
             [f"core/{part}" for part in CORE],
}
BACKEND = ["plugins/abi", "plugins/sdk"]
ABI_SYSTEM = {"stdint.h", "stddef.h"}


def part_of(path):
    """The part of the graph that a file belongs to: "core/base", "backends/cpu", "models", or None outside of it."""
    pieces = path.split("/")
    if pieces[0] in ("core", "plugins", "backends"):
        return "/".join(pieces[:2]) if len(pieces) > 2 else None
    if pieces[:2] == ["tests", "conformance"]:  # of all tests, these alone are part of the program
        return "tests/conformance"
    return pieces[0] if pieces[0] in TOP_FOLDERS and len(pieces) > 1 else None


def resolve(root, path, name):
    """The repository's file that an include means, or None for one from elsewhere."""
    for folder in (os.path.dirname(path),) + ROOTS:
        candidate = os.path.normpath(os.path.join(folder, name)).replace(os.sep, "/")
        if not candidate.startswith("../") and os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def problem_with(root, path, kind, name):
    """Why this file must not include that, or None."""
    part = part_of(path)
    if part == "tests":
        return None
    target = resolve(root, path, name)
    if target is None:
        if part == "plugins/abi" and name not in ABI_SYSTEM:
            return "the contract includes nothing but <stdint.h> and <stddef.h>"
        if kind == '"' and name.split("/")[0] in TOP_FOLDERS:
            return "there is no such file"
        return None
    other = part_of(target)
    if part == other:
        return None
    if other is not None and other.startswith("backends/"):
        return "nothing includes a backend"
    if part is not None and part.startswith("backends/"):
        allowed = BACKEND
    elif part in ALLOWED:
        allowed = ALLOWED[part]
    else:
        return f"{path} belongs to no part of the include graph: add it to tools/check_includes.py"
    if other not in allowed:
        return f"{part} may include only {', '.join(allowed) or 'nothing of ours'}"
    return None


def source_files(root):
    for top in TOP_FOLDERS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for name in sorted(files):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def check(root):
    """(problems, number of files, number of includes)"""
    problems, files, includes = [], 0, 0
    for path in source_files(root):
        files += 1
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as stream:
            for number, line in enumerate(stream, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                includes += 1
                problem = problem_with(root, path, match.group(1), match.group(2))
                if problem:
                    problems.append(f'{path}:{number}: "{match.group(2)}": {problem}')
    return problems, files, includes


def write_tree(root, files):
    for path, text in files.items():
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as stream:
            stream.write(text)


CLEAN = {
    "plugins/abi/backplane_plugin.h": "#include <stdint.h>\n#include <stddef.h>\n",
    "plugins/sdk/backplane_plugin.hpp": '#include "backplane_plugin.h"\n#include <vector>\n',
    "plugins/host/registry.h": '#include "core/base/error.h"\n',
    "plugins/template/template.cc": '#include "backplane_plugin.hpp"\n',
    "core/base/error.h": '#include "plugins/abi/backplane_plugin.h"\n',
    "core/text/bpe.h": '#include "core/base/error.h"\n',
    "core/formats/gguf.h": '#include "core/text/bpe.h"\n',
    "core/kv/pool.h": "#pragma once\n",
    "core/sched/step.h": '#include "core/kv/pool.h"\n',
    "core/device/device.h": '#include "core/sched/step.h"\n',
    "core/sample/sampler.h": "#pragma once\n",
    "core/engine/engine.h": '#include "core/device/device.h"\n#include "core/sample/sampler.h"\n',
    "models/decoder.h": '#include "core/engine/engine.h"\n',
    "backends/cpu/ops.h": '#include "backplane_plugin.hpp"\n',
    "backends/cpu/ops.cc": '#include "ops.h"\n#include "backends/cpu/ops.h"\n',
    "backends/other/x.cc": '#include "plugins/sdk/backplane_plugin.hpp"\n',
    "tools/run.cc": '#include "models/decoder.h"\n#include "plugins/host/registry.h"\n',
    "tests/conformance/suite.h": '#include "core/device/device.h"\n#include "plugins/host/registry.h"\n',
    "tests/unit/cpu/x_test.cc": '#include "backends/cpu/ops.h"\n',
}

WRONG = [
    ("plugins/abi/backplane_plugin.h", "#include <string.h>", "nothing but"),
    ("plugins/abi/backplane_plugin.h", '#include "core/base/error.h"', "nothing of ours"),
    ("plugins/sdk/backplane_plugin.hpp", '#include "core/base/error.h"', "may include only plugins/abi"),
    ("plugins/host/registry.h", '#include "core/text/bpe.h"', "plugins/host may include only"),
    ("plugins/host/registry.h", '#include "backplane_plugin.hpp"', "plugins/host may include only"),
    ("plugins/template/template.cc", '#include "core/base/error.h"', "plugins/template may include only"),
    ("core/base/error.h", '#include "core/kv/pool.h"', "core/base may include only plugins/abi"),
    ("core/base/error.h", '#include "plugins/host/registry.h"', "core/base may include only"),
    ("core/text/bpe.h", '#include "core/formats/gguf.h"', "core/text may include only"),
    ("core/kv/pool.h", '#include "core/text/bpe.h"', "core/kv may include only"),
    ("core/sched/step.h", '#include "core/device/device.h"', "core/sched may include only"),
    ("core/device/device.h", '  #  include <core/engine/engine.h>', "core/device may include only"),
    ("core/device/device.h", '#include "../engine/engine.h"', "core/device may include only"),
    ("core/sample/sampler.h", '#include "core/engine/engine.h"', "core/sample may include only"),
    ("core/engine/engine.h", '#include "models/decoder.h"', "core/engine may include only"),
    ("core/engine/engine.h", '#include "core/engine/absent.h"', "no such file"),
    ("core/engine/engine.h", '#include "backends/cpu/ops.h"', "nothing includes a backend"),
    ("core/stray/x.h", '#include "core/base/error.h"', "no part of the include graph"),
    ("models/decoder.h", '#include "plugins/host/registry.h"', "models may include only"),
    ("backends/other/x.cc", '#include "backends/cpu/ops.h"', "nothing includes a backend"),
    ("backends/cpu/ops.cc", '#include "core/base/error.h"', "backends/cpu may include only"),
    ("tools/run.cc", '#include "backends/cpu/ops.h"', "nothing includes a backend"),
    ("tools/run.cc", '#include "tests/unit/cpu/x_test.cc"', "tools may include only"),
    ("tests/conformance/suite.h", '#include "core/engine/engine.h"', "tests/conformance may include only"),
    ("tests/conformance/suite.h", '#include "backends/cpu/ops.h"', "nothing includes a backend"),
    ("models/decoder.h", '#include "tests/conformance/suite.h"', "models may include only"),
]


def self_test():
    failures = 0
    with tempfile.TemporaryDirectory() as root:
        write_tree(root, CLEAN)
        problems, _, _ = check(root)
        if problems:
            failures += 1
            print("the clean tree is refused:", *problems, sep="\n  ")
    for path, include, expected in WRONG:
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, CLEAN | {path: CLEAN.get(path, "") + include + "\n"})
            problems, _, _ = check(root)
            if len(problems) != 1 or not problems[0].startswith(path + ":") or expected not in problems[0]:
                failures += 1
                print(f"{path}: {include}: expected one problem with {expected!r}, found {problems}")
    print(f"self-test: {len(WRONG) + 1 - failures} passed, {failures} failed")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    problems, files, includes = check(root)
    for problem in problems:
        print(problem)
    print(f"{includes} includes in {files} files, {len(problems)} against the graph")
    return 1 if problems or includes == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
