#!/usr/bin/env python3
"""Keeps the layout of plugins/abi/backplane_plugin.h: what it is, what it was, and that nothing of it ever changes.

  abi_layout.py show     prints the header's layout: sizes, offsets, values, signatures
  abi_layout.py check    the header obeys the rules of plugins/VERSIONING.md, is what layout.txt says, and keeps all of
                         what each record in released/ says
  abi_layout.py update   writes layout.txt; also the record of the current version in released/ with --unreleased,
                         as long as that version is not released
  abi_layout.py release  writes layout.txt, seals the record of the current version, so that from now on it never
                         changes, and keeps a copy of the header beside it, against which tests build a plugin

Options: --abi DIR (the folder with the header), --cc COMPILER (which measures; default: $CC or cc).
Exit status 1: the header or a record is wrong, with one line for each reason.
"""
import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from abi_header import Header, HeaderError, read_header, version_of, without_assertions

HEADER_NAME = "backplane_plugin.h"
PREAMBLE = "# Layout of backplane_plugin.h, as tools/abi_layout.py measured it on a 64-bit machine. Not edited by hand.\n"


@dataclasses.dataclass
class Slot:
    offset: int
    size: int
    type: str


@dataclasses.dataclass
class StructLayout:
    kind: str  # "frozen" or "grows"
    size: int
    members: dict[str, Slot]


@dataclasses.dataclass
class Layout:
    version: tuple[int, int]
    state: str = "unreleased"
    values: dict[str, str] = dataclasses.field(default_factory=dict)
    types: dict[str, str] = dataclasses.field(default_factory=dict)
    functions: dict[str, str] = dataclasses.field(default_factory=dict)
    structs: dict[str, StructLayout] = dataclasses.field(default_factory=dict)


# ---- Measuring

def is_number(text: str) -> bool:
    return not text.startswith('"') and not re.fullmatch(r"[a-z]\w*", text)


def probe_program(header: Header) -> str:
    lines = [f'#include "{HEADER_NAME}"', "#include <stdio.h>", "int main(void) {"]
    names = [name for enum in header.enums for name in enum]
    names += [name for name, text in header.macros.items() if is_number(text)]
    lines += [f'printf("value {name} %lld\\n", (long long)({name}));' for name in names]
    for struct in header.structs.values():
        lines.append(f'printf("struct {struct.name} %zu\\n", sizeof({struct.name}));')
        for member in struct.members:
            where, what = f"offsetof({struct.name}, {member.name})", f"sizeof((({struct.name}*)0)->{member.name})"
            lines.append(f'printf("member {member.name} %zu %zu\\n", {where}, {what});')
    return "\n".join(lines + ["return 0;", "}", ""])


def run_probe(text: str, header: Header, compiler: str) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / HEADER_NAME).write_text(without_assertions(text))
        (path / "probe.c").write_text(probe_program(header))
        build = [compiler, "-std=c11", "-w", str(path / "probe.c"), "-o", str(path / "probe")]
        made = subprocess.run(build, capture_output=True, text=True)
        if made.returncode != 0:
            raise HeaderError("the header doesn't compile: " + made.stderr.strip())
        return [line.split() for line in subprocess.check_output([path / "probe"], text=True).splitlines()]


def measure(text: str, compiler: str) -> tuple[Header, Layout]:
    header = read_header(text)
    layout = Layout(version_of(header), types=header.types, functions=header.functions)
    layout.values = {name: text for name, text in header.macros.items() if not is_number(text)}
    struct = None
    for kind, name, *numbers in run_probe(text, header, compiler):
        if kind == "value":
            layout.values[name] = numbers[0]
        elif kind == "struct":
            struct = header.structs[name]
            layout.structs[name] = StructLayout("frozen" if struct.frozen else "grows", int(numbers[0]), {})
        else:
            member = next(m for m in struct.members if m.name == name)
            layout.structs[struct.name].members[name] = Slot(int(numbers[0]), int(numbers[1]), member.type)
    return header, layout


# ---- Records

def write_record(layout: Layout, state: str) -> str:
    lines = [f"state {state}", f"abi {layout.version[0]}.{layout.version[1]}"]
    for kind, entries in (("type", layout.types), ("function", layout.functions), ("value", layout.values)):
        lines += [f"{kind} {name} {text}" for name, text in entries.items()
                  if name not in ("BP_ABI_MAJOR", "BP_ABI_MINOR")]
    for name, struct in layout.structs.items():
        lines.append(f"struct {name} {struct.kind} {struct.size}")
        lines += [f"  {member} {slot.offset} {slot.size} {slot.type}" for member, slot in struct.members.items()]
    return PREAMBLE + "\n".join(lines) + "\n"


def read_record(text: str, label: str) -> Layout:
    layout, struct = Layout((0, 0)), None
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(None, 3 if line.startswith("  ") else 2)
        try:
            if line.startswith("  "):
                struct.members[words[0]] = Slot(int(words[1]), int(words[2]), words[3])
            elif words[0] == "struct":
                kind, size = words[2].split()
                struct = layout.structs[words[1]] = StructLayout(kind, int(size), {})
            elif words[0] == "state":
                layout.state = words[1]
            elif words[0] == "abi":
                major, minor = words[1].split(".")
                layout.version = (int(major), int(minor))
            else:
                {"value": layout.values, "type": layout.types, "function": layout.functions}[words[0]][words[1]] = words[2]
        except (AttributeError, IndexError, KeyError, ValueError):
            raise HeaderError(f"{label}: the line '{line.strip()}' is not understood") from None
    return layout


# ---- Rules that the header must keep at any time

def find_flaws(header: Header, layout: Layout) -> list[str]:
    flaws = []
    for enum in header.enums:
        seen: dict[str, str] = {}
        for name in enum:
            value = layout.values[name]
            if value in seen:
                flaws.append(f"{name} and {seen[value]} are both {value}")
            seen[value] = name
            if not -1 < int(value) < 2**31:
                flaws.append(f"{name} doesn't fit an int, as an enumerator must: make it a macro of uint64_t")
            if name.startswith("BP_TYPE_") and int(value) > 255:
                flaws.append(f"{name} is {value}, but a bp_type_set holds types below 256")
    features = {name: int(value) for name, value in layout.values.items() if name.startswith("BP_FEATURE_")}
    for name, bits in features.items():
        others = [other for other, theirs in features.items() if other < name and theirs & bits]
        if others or bits.bit_count() != 1:
            flaws.append(f"{name} must be one bit of its own" + (f", not one of {others[0]}" if others else ""))
    for name, struct in header.structs.items():
        flaws += flaws_of_struct(name, struct, header, layout.structs[name])
    return flaws


def flaws_of_struct(name, struct, header, layout) -> list[str]:
    flaws = []
    if struct.grows == struct.frozen:
        flaws.append(f"{name} must either begin with `uint64_t size` or be marked FROZEN in the comment right before it")
    end = 0
    for member in struct.members:
        slot, inner = layout.members[member.name], header.structs.get(member.pointee)
        if slot.offset != end:
            flaws.append(f"{name} has a hole of {slot.offset - end} bytes before {member.name}: fill it with a reserved member")
        end = slot.offset + slot.size
        if not inner or inner.frozen:
            continue
        if not member.is_pointer:
            flaws.append(f"{name}.{member.name} embeds {inner.name}, which may grow: pass a pointer to it")
        stride = member.name.removesuffix("s") + "_stride"
        is_array = member.name.endswith("s") and not inner.name.endswith("_table")
        if member.is_pointer and is_array and stride not in layout.members:
            flaws.append(f"{name}.{member.name} is an array of {inner.name}, which may grow: it needs {stride}")
    if end != layout.size:
        flaws.append(f"{name} has a hole of {layout.size - end} bytes at its end, where a later member would not change "
                     "its size: fill it with a reserved member")
    return flaws


# ---- What a header must keep of an earlier one

def compare_texts(kind: str, new: dict[str, str], old: dict[str, str], changed: str) -> list[str]:
    lines = []
    for name, text in old.items():
        if name not in new:
            lines.append(f"{kind} {name} is gone")
        elif new[name] != text:
            lines.append(f"{kind} {name} {changed} from {text} to {new[name]}")
    return lines


def compare_struct(name: str, new: StructLayout, old: StructLayout) -> list[str]:
    if new.kind != old.kind:
        return [f"{name} was '{old.kind}' and is now '{new.kind}'"]
    lines = []
    for member, slot in old.members.items():
        now, label = new.members.get(member), f"{name}.{member}"
        if now is None:
            lines.append(f"{label} is gone (or has another name)")
            continue
        if now.offset != slot.offset:
            lines.append(f"{label} moved from offset {slot.offset} to {now.offset}")
        if now.size != slot.size:
            lines.append(f"{label} has {now.size} bytes instead of {slot.size}")
        if now.type != slot.type:
            lines.append(f"{label} changed from {slot.type} to {now.type}")
    added = [member for member in new.members if member not in old.members]
    if new.kind == "frozen" and (added or new.size != old.size):
        lines.append(f"{name} is FROZEN and may not change: {old.size} bytes became {new.size}")
        return lines
    for member in added:
        if new.members[member].offset < old.size:
            lines.append(f"{name}.{member} was added before the end ({old.size} bytes): append it")
    return lines


def find_breaks(new: Layout, old: Layout) -> list[str]:
    """What a plugin or core built for `old` would trip over in `new`."""
    lines = []
    if new.version[0] != old.version[0]:
        return [f"major version {new.version[0]} instead of {old.version[0]}: keep the old header beside the new one"]
    if new.version < old.version:
        lines.append(f"version {new.version[0]}.{new.version[1]} is older")
    without_version = {k: v for k, v in new.values.items() if k not in ("BP_ABI_MAJOR", "BP_ABI_MINOR")}
    lines += compare_texts("value", without_version, old.values, "was renumbered")
    lines += compare_texts("type", new.types, old.types, "changed")
    lines += compare_texts("function", new.functions, old.functions, "changed")
    for name, struct in old.structs.items():
        lines += compare_struct(name, new.structs[name], struct) if name in new.structs else [f"{name} is gone"]
    return lines


def find_additions(new: Layout, old: Layout) -> list[str]:
    names = [name for kind in ("values", "types", "functions", "structs")
             for name in getattr(new, kind) if name not in getattr(old, kind)]
    names = [name for name in names if name not in ("BP_ABI_MAJOR", "BP_ABI_MINOR")]
    return names + [f"{name}.{member}" for name, struct in new.structs.items() if name in old.structs
                    for member in struct.members if member not in old.structs[name].members]


def check_against(new: Layout, old: Layout, label: str) -> list[str]:
    lines = find_breaks(new, old)
    additions = find_additions(new, old)
    if additions and not lines and new.version == old.version:
        remedy = "raise BP_ABI_MINOR"
        if old.state == "unreleased":
            remedy += ", or, because this version isn't released yet, run `abi_layout.py update --unreleased`"
        lines.append(f"{', '.join(additions[:6])} came to a version that is recorded without: {remedy}")
    return [f"{label}: {line}" for line in lines]


# ---- Commands

def check(abi: pathlib.Path, compiler: str) -> list[str]:
    header, layout = measure((abi / HEADER_NAME).read_text(), compiler)
    problems = find_flaws(header, layout)
    records = sorted((abi / "released").glob("*.txt"))
    if not records:
        problems.append("released/ holds no record: a check against nothing is none")
    for path in records:
        problems += check_against(layout, read_record(path.read_text(), path.name), f"released/{path.name}")
    path = abi / "layout.txt"
    if not path.exists() or path.read_text() != write_record(layout, "current"):
        problems.append("layout.txt is not the layout of this header: run `abi_layout.py update` and review what changed")
    return problems


def update(abi: pathlib.Path, compiler: str, state: str) -> list[str]:
    """`state`: of the record in released/, or "" to leave that alone."""
    header, layout = measure((abi / HEADER_NAME).read_text(), compiler)
    path = abi / "released" / f"{layout.version[0]}.{layout.version[1]}.txt"
    if state and path.exists() and read_record(path.read_text(), path.name).state == "released":
        return [f"released/{path.name} is sealed: this version was released"]
    problems = find_flaws(header, layout) if state else []
    if problems:
        return problems
    (abi / "layout.txt").write_text(write_record(layout, "current"))
    if state:
        path.parent.mkdir(exist_ok=True)
        path.write_text(write_record(layout, state))
    if state == "released":
        shutil.copyfile(abi / HEADER_NAME, path.with_suffix(".h"))
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("show", "check", "update", "release"))
    parser.add_argument("--abi", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "plugins/abi")
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"))
    parser.add_argument("--unreleased", action="store_true", help="with update: also the record of a version under way")
    arguments = parser.parse_args()
    problems = []
    try:
        if arguments.command == "show":
            sys.stdout.write(write_record(measure((arguments.abi / HEADER_NAME).read_text(), arguments.cc)[1], "current"))
        elif arguments.command == "check":
            problems = check(arguments.abi, arguments.cc)
        else:
            state = "released" if arguments.command == "release" else "unreleased" if arguments.unreleased else ""
            problems = update(arguments.abi, arguments.cc, state)
    except HeaderError as error:
        problems = [str(error)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
