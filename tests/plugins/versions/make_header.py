#!/usr/bin/env python3
"""Makes two headers out of the plugin ABI's, for the tests of versions: what it may have been, and what it may become.

  make_header.py older|later HEADER RESULT

`older` ends tables, structs and enums earlier. `later` appends to every struct that may grow, adds values to the enums
and a table to bp_tables, and is one minor version ahead. Both are made from the header as it is, by the rules of
plugins/VERSIONING.md only, so that they follow when it changes.
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
from abi_header import ENUM, STATIC_ASSERT, STRUCT, read_header, split_statement, strip_comments  # noqa: E402

# The first member of a struct that the older header hasn't. None of 1.0's required functions is among them, and zero
# means its absence, as the rules ask of members that come later.
OLDER_ENDS = {
    "bp_host": "query_extension",
    "bp_device_info": "memory_total",
    "bp_open_params": "options",
    "bp_driver_table": "describe",
    "bp_caps": "max_buffer_bytes",
    "bp_op_query": "name",
    "bp_support": "quantized_activation_type",
    "bp_device_table": "prepare",
    "bp_buffer_table": "map",
    "bp_stream_table": "event_create",
    "bp_step": "state_slot_offset",
    "bp_op": "name",
    "bp_linear_args": "residual",
    "bp_attention_args": "softcap",
    "bp_qkv_args": "x_norm",
    "bp_gateup_args": "x_norm",
    "bp_kv_desc": "flags",
    "bp_kv_table": "native_layout",
    "bp_tables": "kv",
}
OLDER_LACKS = {
    "BP_UNAVAILABLE", "BP_TYPE_F8_E4M3", "BP_TYPE_F8_E5M2", "BP_TYPE_IQ4_NL", "BP_TYPE_IQ4_XS", "BP_TYPE_MXFP4",
    "BP_CAP_BATCH_INVARIANT", "BP_SUPPORT_BATCH_INVARIANT", "BP_SUPPORT_FLUSHES_DENORMALS", "BP_MEMORY_IMPORTED",
    "BP_OP_SAMPLE", "BP_OP_ADVANCE", "BP_OP_ADD_NORM", "BP_OP_QKV_ROPE_WRITE", "BP_OP_GATEUP_GLU", "BP_OP_LINEAR_ADD",
    "BP_OP_HEAD_ARGMAX", "BP_OP_LINEAR_ACT", "BP_FEATURE_RELU", "BP_FEATURE_TRANSPOSED", "BP_FEATURE_X_NORM",
    "BP_ACT_RELU", "BP_WEIGHT_TRANSPOSED",
}
# What the later header adds to an enum, told by one of its values: name and value.
LATER_VALUES = {
    "BP_OK": ("BP_LATER", "7"),
    "BP_TYPE_F32": ("BP_TYPE_LATER", "61"),
    "BP_OPEN_DETERMINISTIC": ("BP_OPEN_LATER", "1 << 20"),
    "BP_CAP_UNIFIED": ("BP_CAP_LATER", "1 << 20"),
    "BP_SUPPORT_CAPTURE_SAFE": ("BP_SUPPORT_LATER", "1 << 20"),
    "BP_MEMORY_DEVICE": ("BP_MEMORY_LATER", "8"),
    "BP_OP_EMBED": ("BP_OP_LATER", "40"),
    "BP_NORM_RMS": ("BP_NORM_LATER", "9"),
    "BP_ACT_SILU": ("BP_ACT_LATER", "9"),
    "BP_USE_LINEAR": ("BP_USE_LATER", "1 << 20"),
    "BP_WEIGHT_TRANSPOSED": ("BP_WEIGHT_LATER", "1 << 20"),
}
LATER_MACROS = "#define BP_FEATURE_LATER (UINT64_C(1) << 50)\n#define BP_KV_LATER (UINT64_C(1) << 20)\n"
LATER_TABLE = "typedef struct bp_later_table {\n  uint64_t size;\n  bp_status (*act)(bp_device device);\n} bp_later_table;\n\n"


def plain_text(text: str) -> str:
    """Without assertions and comments, but for the word that the layout's checker reads in them."""
    text = re.sub(r"/\*\s*FROZEN.*?\*/", "/@ FROZEN. @/", STATIC_ASSERT.sub("", text), flags=re.S)
    return strip_comments(text).replace("/@", "/*").replace("@/", "*/")


def first_enumerator(body: str) -> str:
    return body.split("=")[0].strip()


def cut_struct(match: re.Match) -> str:
    name, body = match.group(1), match.group(2)
    end = OLDER_ENDS.get(name)
    if end is None:
        return match.group()
    kept = []
    for statement in body.split(";"):
        if not statement.strip():
            continue
        names = [member.name for member in split_statement(statement)]
        if end not in names:
            kept.append(statement)
            continue
        if names.index(end) > 0:  # one of several in a declaration
            kept.append(re.sub(rf",\s*{end}\b.*$", "", statement, flags=re.S))
        return match.group().replace(body, ";".join(kept) + ";\n")
    raise SystemExit(f"make_header.py: {name} has no member {end}: mend the list in this file")


def cut_enum(match: re.Match) -> str:
    entries = [entry for entry in match.group(2).split(",") if entry.strip()]
    kept = [entry for entry in entries if first_enumerator(entry) not in OLDER_LACKS]
    return match.group().replace(match.group(2), ",".join(kept)) if kept else ""


def make_older(text: str) -> str:
    header = read_header(text)
    names = {name for enum in header.enums for name in enum}
    if OLDER_LACKS - names or set(OLDER_ENDS) - set(header.structs):
        raise SystemExit("make_header.py: the list of what the older header lacks names what isn't there: mend it")
    return ENUM.sub(cut_enum, STRUCT.sub(cut_struct, plain_text(text)))


def extend_struct(match: re.Match, growing: set[str]) -> str:
    name, body = match.group(1), match.group(2)
    if name not in growing:
        return match.group()
    later = "uint64_t later;"
    if name == "bp_host":
        later = "uint32_t (*later)(void* self);"
    elif name == "bp_tables":
        later = "bp_later_table* later;"
    elif name.endswith("_table"):
        later = "bp_status (*later)(bp_device device, bp_context context);"
    before = LATER_TABLE if name == "bp_tables" else ""
    return before + match.group().replace(body, f"{body}  {later}\n")


def extend_enum(match: re.Match) -> str:
    body = match.group(2).rstrip().rstrip(",")
    added = [f"{name} = {value}" for known, (name, value) in LATER_VALUES.items() if re.search(rf"\b{known}\b", body)]
    return match.group().replace(match.group(2), ", ".join([body, *added]) + "\n")


def make_later(text: str) -> str:
    header = read_header(text)
    growing = {name for name, struct in header.structs.items() if struct.grows}
    minor = int(header.macros["BP_ABI_MINOR"])
    plain = STRUCT.sub(lambda match: extend_struct(match, growing), plain_text(text))
    plain = ENUM.sub(extend_enum, plain)
    plain = re.sub(r"(#define BP_ABI_MINOR) \d+", rf"\1 {minor + 1}", plain)
    return plain.replace("struct bp_op {", LATER_MACROS + "struct bp_op {", 1)


def main() -> None:
    if len(sys.argv) != 4 or sys.argv[1] not in ("older", "later"):
        raise SystemExit(__doc__)
    text = pathlib.Path(sys.argv[2]).read_text()
    result = pathlib.Path(sys.argv[3])
    result.parent.mkdir(parents=True, exist_ok=True)
    partial = result.with_suffix(f".{os.getpid()}")
    partial.write_text((make_older if sys.argv[1] == "older" else make_later)(text))
    partial.replace(result)


if __name__ == "__main__":
    main()
