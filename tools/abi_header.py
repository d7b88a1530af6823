"""Reads plugins/abi/backplane_plugin.h, which keeps to a small part of C: struct definitions without nesting, unnamed
enums, typedefs, object-like macros and one function. Whatever else stands in it is an error, so that nothing is
overlooked."""
import dataclasses
import re
from typing import Optional

COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRUCT = re.compile(r"(?:typedef\s+)?struct\s+(bp_\w+)\s*\{([^{}]*)\}\s*(\w*)\s*;")
ENUM = re.compile(r"(?:typedef\s+)?enum\s*(\w*)\s*\{([^{}]*)\}\s*(\w*)\s*;")
STATIC_ASSERT = re.compile(r"^BP_STATIC_ASSERT\(.*\);[ \t]*$", re.M)
FUNCTION_POINTER = re.compile(r"^(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", re.S)
PLAIN_MEMBER = re.compile(r"^((?:const\s+)?\w+)\b(.*)$", re.S)
DECLARATOR = re.compile(r"^\s*(\**)\s*(\w+)\s*((?:\[\w+\])*)\s*$")
MACRO = re.compile(r"^#define[ \t]+(\w+)(\(.*?\))?[ \t]*(.*)$", re.M)
IGNORED_MACROS = {"BACKPLANE_PLUGIN_H_", "BP_EXPORT", "BP_STATIC_ASSERT"}


class HeaderError(Exception):
    pass


@dataclasses.dataclass
class Member:
    name: str
    type: str  # with parameter names left out, so that these may change
    is_function: bool = False
    pointee: str = ""  # of a plain pointer or a value: the bare type name
    is_pointer: bool = False


@dataclasses.dataclass
class Struct:
    name: str
    members: list[Member]
    frozen: bool

    @property
    def grows(self) -> bool:
        return bool(self.members) and self.members[0].name == "size" and self.members[0].type == "uint64_t"


@dataclasses.dataclass
class Header:
    structs: dict[str, Struct]
    enums: list[list[str]]        # the names of each enum
    macros: dict[str, str]        # object-like ones, with their text
    types: dict[str, str]         # scalars and handles
    functions: dict[str, str]     # function types, and the entry point


def strip_comments(text: str) -> str:
    return COMMENT.sub(lambda match: " " + "\n" * match.group().count("\n"), text)


def squeeze(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\s*\*", "*", text)
    return re.sub(r"\*(\w)", r"* \1", text)


def parameter_types(parameters: str) -> str:
    types = []
    for parameter in parameters.split(","):
        parameter = squeeze(parameter)
        match = re.match(r"^(.*?)\s*(\w+)((?:\[\w+\])?)$", parameter)
        if parameter == "void":
            types.append("void")
        elif match and match.group(1) not in ("", "const"):
            types.append(squeeze(match.group(1)) + match.group(3))
        else:
            raise HeaderError(f"the parameter '{parameter}' has no name or is not understood")
    return ", ".join(types)


def split_statement(statement: str) -> list[Member]:
    """The members that one declaration of a struct makes."""
    function = FUNCTION_POINTER.match(statement.strip())
    if function:
        result, name, parameters = function.groups()
        return [Member(name, f"{squeeze(result)}({parameter_types(parameters)})", is_function=True)]
    plain = PLAIN_MEMBER.match(squeeze(statement))
    members = []
    for part in plain.group(2).split(",") if plain else []:
        declarator = DECLARATOR.match(part)
        if not declarator:
            raise HeaderError(f"the member '{squeeze(statement)}' is not understood")
        stars, name, arrays = declarator.groups()
        base = plain.group(1)
        members.append(Member(name, base + stars + arrays, False, base.removeprefix("const "), bool(stars)))
    if not members:
        raise HeaderError(f"the member '{squeeze(statement)}' is not understood")
    return members


def is_marked_frozen(text: str, start: int) -> bool:
    """Whether the comment right before a definition begins with FROZEN."""
    before = text[:start].rstrip()
    if not before.endswith("*/"):
        return False
    comment = before[before.rindex("/*"):]
    return comment[2:].lstrip().startswith("FROZEN")


def read_structs(text: str) -> dict[str, Struct]:
    # Comments become spaces one for one, so that positions hold in both texts.
    plain = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    structs = {}
    for match in STRUCT.finditer(plain):
        statements = [s for s in match.group(2).split(";") if s.strip()]
        members = [member for statement in statements for member in split_statement(statement)]
        name = match.group(1)
        if name in structs:
            raise HeaderError(f"{name} is defined twice")
        structs[name] = Struct(name, members, is_marked_frozen(text, match.start()))
    return structs


def read_enums(plain: str) -> list[list[str]]:
    enums = []
    for match in ENUM.finditer(plain):
        if match.group(1) or match.group(3):
            raise HeaderError(f"enum {match.group(1) or match.group(3)} has a name: its size would be the compiler's choice")
        entries = [entry.strip() for entry in match.group(2).split(",") if entry.strip()]
        for entry in entries:
            if "=" not in entry:
                raise HeaderError(f"{entry} has no number of its own: inserting one before it would renumber it")
        enums.append([entry.split("=")[0].strip() for entry in entries])
    return enums


def read_typedefs(rest: str, header: Header) -> str:
    def take(match: re.Match) -> str:
        body = squeeze(match.group(1))
        function = FUNCTION_POINTER.match(body)
        if function:
            result, name, parameters = function.groups()
            header.functions[name] = f"{squeeze(result)}({parameter_types(parameters)})"
        elif not re.fullmatch(r"struct (\w+) \1", body):  # a forward declaration says nothing about layout
            type_text, name = body.rsplit(" ", 1)
            header.types[name] = type_text
        return ""
    return re.sub(r"typedef\s+([^;{}]+);", take, rest)


def read_header(text: str) -> Header:
    plain = strip_comments(text)
    header = Header(read_structs(text), read_enums(plain), {}, {}, {})
    for name, parameters, value in MACRO.findall(plain):
        if name not in IGNORED_MACROS and not parameters:
            header.macros[name] = value.strip()
    rest = STATIC_ASSERT.sub("", ENUM.sub("", STRUCT.sub("", re.sub(r"^\s*#.*$", "", plain, flags=re.M))))
    rest = read_typedefs(rest, header)
    entry = re.search(r"BP_EXPORT\s+(\w+)\s+(\w+)\(([^()]*)\);", rest)
    if not entry:
        raise HeaderError("there is no entry point")
    header.functions[entry.group(2)] = f"{entry.group(1)}({parameter_types(entry.group(3))})"
    rest = rest.replace(entry.group(), "")
    left = squeeze(re.sub(r'extern "C" \{|\}', "", rest))
    if left:
        raise HeaderError(f"not understood: '{left[:120]}'")
    return header


def without_assertions(text: str) -> str:
    """The same header without its own assertions, for tools that have more to say than that one of them fails."""
    return STATIC_ASSERT.sub("", text)


def version_of(header: Header) -> Optional[tuple[int, int]]:
    try:
        return int(header.macros["BP_ABI_MAJOR"]), int(header.macros["BP_ABI_MINOR"])
    except (KeyError, ValueError):
        raise HeaderError("BP_ABI_MAJOR and BP_ABI_MINOR must be plain numbers") from None
