#!/usr/bin/env python3
"""Checks the checker: each wrong change of the real header must be refused, with the reason, and right ones must pass.

  abi_layout_test.py [--cc COMPILER]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent
ABI = TOOLS.parent / "plugins/abi"
COMPILER = os.environ.get("CC", "cc")
CURRENT = int(re.search(r"#define BP_ABI_MINOR (\d+)", (ABI / "backplane_plugin.h").read_text()).group(1))
MINOR = (f"#define BP_ABI_MINOR {CURRENT}", f"#define BP_ABI_MINOR {CURRENT + 1}")

# A later struct that may grow, for those that must not hold one.
LATER = "typedef struct bp_later {\n  uint64_t size;\n  double value;\n} bp_later;\n\n"

# What is wrong: the replacements that make it so, and what the checker must say.
WRONG = {
    "a member moved": (
        [("  bp_tensor bias;   /* as weight, or absent */\n", ""),
         ("  double eps;\n", "  double eps;\n  bp_tensor bias;\n")],
        "bp_norm_args.bias moved from offset"),
    "two members of one size swapped": (
        [("  double scale;\n  double softcap; /* 0: none */", "  double softcap;\n  double scale;")],
        "bp_attention_args.scale moved from offset"),
    "a member removed": ([("  uint64_t memory_free;         /* bytes at this moment, 0: unknown */\n", "")],
                         "bp_caps.memory_free is gone"),
    "a member resized": ([("  uint32_t page_sizes[8];", "  uint32_t page_sizes[16];")],
                         "bp_caps.page_sizes has 64 bytes instead of 32"),
    "a member of another type and the same size": ([("  double eps;", "  uint64_t eps;")],
                                                   "bp_norm_args.eps changed from double to uint64_t"),
    "a member inserted in the middle": ([("  uint32_t max_tokens; ", "  uint64_t max_heads;\n  uint32_t max_tokens; ")],
                                        "bp_caps.max_heads was added before the end"),
    "a frozen struct grown": ([("  int64_t stride[4]; /* bytes", "  uint64_t flags;\n  int64_t stride[4]; /* bytes")],
                              "bp_tensor is FROZEN and may not change: 88 bytes became 96"),
    "a frozen struct thawed": ([("/* FROZEN. A weight matrix", "/* A weight matrix")], "bp_matrix must either begin with"),
    "an enum value renumbered": ([("BP_TYPE_Q8_0 = 36", "BP_TYPE_Q8_0 = 37")], "value BP_TYPE_Q8_0 was renumbered from 36 to 37"),
    "an enum value removed": ([("  BP_OP_COPY = 15,        /* bp_unary_args */\n", "")], "value BP_OP_COPY is gone"),
    "an enum value used twice": ([("BP_OP_ADVANCE = 20", "BP_OP_LATER = 20, BP_OP_ADVANCE = 20")],
                                 "BP_OP_ADVANCE and BP_OP_LATER are both 20"),
    "an enum value inserted without a number": ([("  BP_OP_ADD = 10, ", "  BP_OP_LATER,\n  BP_OP_ADD = 10, ")],
                                                "BP_OP_LATER has no number of its own"),
    "a feature that is no int": ([("BP_FEATURE_TRANSPOSED = 1 << 28", "BP_FEATURE_TRANSPOSED = 1 << 28, BP_FEATURE_LATER = 1 << 31")],
                                 "BP_FEATURE_LATER doesn't fit an int"),
    "a feature as a macro on another's bit": (
        [MINOR, ("struct bp_op {", "#define BP_FEATURE_LATER (UINT64_C(1) << 16)\nstruct bp_op {")],
        "BP_FEATURE_LATER must be one bit of its own"),
    "a type that no set can hold": ([("BP_TYPE_MXFP4 = 60 ", "BP_TYPE_MXFP4 = 60, BP_TYPE_LATER = 256 ")],
                                    "BP_TYPE_LATER is 256"),
    "a slot removed": ([("  void (*uncompile)(bp_device device, bp_compiled compiled);\n", "")],
                       "bp_device_table.uncompile is gone"),
    "a slot inserted in the middle": (
        [("  /* REQUIRED. Runs one op", "  bp_status (*later)(bp_device device);\n  /* REQUIRED. Runs one op")],
        "bp_device_table.run moved from offset 24 to 32"),
    "a slot with one more parameter": (
        [("  bp_status (*sync)(bp_device device, bp_stream stream, bp_context context);",
          "  bp_status (*sync)(bp_device device, bp_stream stream, bp_context context, uint64_t timeout);")],
        "bp_stream_table.sync changed from"),
    "a slot with a fixed array of another length": ([("char tag[64]", "char tag[128]")], "bp_kv_table.native_layout changed from"),
    "another callback": ([("(void* argument, uint64_t begin, uint64_t end, uint32_t worker);",
                           "(void* argument, uint64_t begin, uint64_t end);")], "function bp_loop_body changed from"),
    "a scalar of another width": ([("typedef uint32_t bp_memory;", "typedef uint64_t bp_memory;")],
                                  "type bp_memory changed from uint32_t to uint64_t"),
    "a growing struct embedded at the end": (
        [MINOR, ("/* out[r] = x[index[r]]. */\n", LATER + "/* */\n"),
         ("  bp_tensor out;   /* [R,H] */\n} bp_gather_args;", "  bp_tensor out;\n  bp_later later;\n} bp_gather_args;")],
        "bp_gather_args.later embeds bp_later, which may grow"),
    "an array of growing structs without a stride": (
        [MINOR, ("/* out[r] = x[index[r]]. */\n", LATER + "/* */\n"),
         ("  bp_tensor out;   /* [R,H] */\n} bp_gather_args;",
          "  bp_tensor out;\n  const bp_later* experts;\n  uint64_t expert_count;\n} bp_gather_args;")],
        "bp_gather_args.experts is an array of bp_later, which may grow: it needs expert_stride"),
    "a hole at the end": ([MINOR, ("  uint64_t flags; /* none yet;", "  uint32_t later;\n  uint64_t flags; /* none yet;")],
                          "bp_kv_desc has a hole of 4 bytes before flags"),
    "a new struct with a hole at its end": (
        [MINOR, ("/* out[r] = x[index[r]]. */\n", LATER.replace("double", "float") + "/* */\n")],
        "bp_later has a hole of 4 bytes at its end"),
    "a new struct that has no size": (
        [MINOR, ("/* out[r] = x[index[r]]. */\n", LATER.replace("uint64_t size", "uint64_t count") + "/* */\n")],
        "bp_later must either begin with `uint64_t size` or be marked FROZEN"),
    "an addition without a new minor version": (
        [("  BP_TYPE_MXFP4 = 60 ", "  BP_TYPE_LATER = 61,\n  BP_TYPE_MXFP4 = 60 ")],
        "BP_TYPE_LATER came to a version that is recorded without: raise BP_ABI_MINOR"),
    "another major version": ([("#define BP_ABI_MAJOR 1", "#define BP_ABI_MAJOR 2")], "keep the old header beside the new one"),
    "another entry point": ([('"backplane_plugin_v1"', '"backplane_plugin_v2"')], "value BP_ENTRY_POINT_NAME was renumbered"),
    "something that the tool doesn't know": (
        [("typedef uint32_t bp_memory;", "typedef uint32_t bp_memory;\nextern int bp_counter;")], "not understood"),
    "an enum with a name": ([("enum { BP_NORM_RMS = 1", "enum bp_norm { BP_NORM_RMS = 1")], "enum bp_norm has a name"),
}

RIGHT = {
    "nothing": [],
    "another name of a parameter": [("const bp_kv_desc* desc, uint64_t* bytes);", "const bp_kv_desc* desc, uint64_t* size);")],
    "other comments": [("/* out[r] = x[index[r]]. */", "/* Picks rows. */")],
    "an appended member": [MINOR, ("  uint64_t flags; /* none yet;", "  uint64_t flags;\n  uint64_t later; /* none yet;")],
    "an appended slot": [MINOR, ("  void (*uncompile)(bp_device device, bp_compiled compiled);\n",
                                 "  void (*uncompile)(bp_device device, bp_compiled compiled);\n"
                                 "  bp_status (*later)(bp_device device, bp_context context);\n")],
    "new values": [MINOR, ("  BP_TYPE_MXFP4 = 60 ", "  BP_TYPE_LATER = 61,\n  BP_TYPE_MXFP4 = 60 ")],
    "a new feature as a macro": [MINOR, ("struct bp_op {", "#define BP_FEATURE_LATER (UINT64_C(1) << 40)\nstruct bp_op {")],
    "a new struct": [MINOR, ("/* out[r] = x[index[r]]. */\n", LATER + "/* */\n")],
}


class Mutant:
    """A copy of plugins/abi with changes of its header."""

    def __init__(self, folder, changes):
        self.abi = pathlib.Path(folder) / "abi"
        shutil.copytree(ABI, self.abi)
        header = self.abi / "backplane_plugin.h"
        text = header.read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"'{old}' is {text.count(old)} times in the header: mend this test"
            text = text.replace(old, new)
        header.write_text(text)

    def run(self, *arguments):
        command = [sys.executable, str(TOOLS / "abi_layout.py"), *arguments, "--abi", str(self.abi), "--cc", COMPILER]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stderr


class CheckerTest(unittest.TestCase):
    maxDiff = None

    def test_wrong_changes_are_refused(self):
        for label, (changes, message) in WRONG.items():
            with self.subTest(label), tempfile.TemporaryDirectory() as folder:
                mutant = Mutant(folder, changes)
                status, text = mutant.run("check")
                self.assertEqual(status, 1, text)
                self.assertIn(message, text)
                self.assertNotIn("Traceback", text)

    def test_right_changes_pass(self):
        for label, changes in RIGHT.items():
            with self.subTest(label), tempfile.TemporaryDirectory() as folder:
                mutant = Mutant(folder, changes)
                self.assertEqual(mutant.run("update"), (0, ""))
                self.assertEqual(mutant.run("check"), (0, ""))

    def test_layout_must_be_taken_over(self):
        with tempfile.TemporaryDirectory() as folder:
            status, text = Mutant(folder, RIGHT["an appended member"]).run("check")
            self.assertEqual(status, 1)
            self.assertIn("layout.txt is not the layout of this header", text)

    def test_records_must_be_there_and_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            mutant = Mutant(folder, [])
            for record in (mutant.abi / "released").glob("*.txt"):
                record.unlink()
            self.assertIn("released/ holds no record", mutant.run("check")[1])
            (mutant.abi / "released/1.0.txt").write_text("value BP_OK\n")
            self.assertIn("the line 'value BP_OK' is not understood", mutant.run("check")[1])

    def test_open_version_is_rewritten_and_sealed_one_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            mutant = Mutant(folder, [("BP_TYPE_MXFP4 = 60 ", "BP_TYPE_MXFP4 = 60, BP_TYPE_LATER = 61 ")])
            record = mutant.abi / f"released/1.{CURRENT}.txt"
            record.write_text(record.read_text().replace("state released", "state unreleased"))
            self.assertEqual(mutant.run("update", "--unreleased"), (0, ""))
            self.assertEqual(mutant.run("check"), (0, ""))
            self.assertEqual(mutant.run("release"), (0, ""))
            self.assertIn("state released", record.read_text())
            self.assertEqual(record.with_suffix(".h").read_text(), (mutant.abi / "backplane_plugin.h").read_text())
            for arguments in (("release",), ("update", "--unreleased")):
                status, text = mutant.run(*arguments)
                self.assertEqual(status, 1)
                self.assertIn("is sealed", text)

    def test_taking_a_break_over_is_no_way_out(self):
        with tempfile.TemporaryDirectory() as folder:
            mutant = Mutant(folder, WRONG["an enum value renumbered"][0])
            self.assertEqual(mutant.run("update"), (0, ""))
            status, text = mutant.run("check")
            self.assertEqual((status, text.count("\n")), (1, 1), text)
            self.assertIn("released/1.0.txt: value BP_TYPE_Q8_0 was renumbered", text)

    def test_headers_of_the_version_tests(self):
        """What those tests call older and later must be so by the rules, or they prove nothing."""
        maker = TOOLS.parent / "tests/plugins/versions/make_header.py"

        def make(kind, mutant):
            subprocess.run([sys.executable, str(maker), kind, str(ABI / "backplane_plugin.h"),
                            str(mutant.abi / "backplane_plugin.h")], check=True)

        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            later = Mutant(one, [])
            make("later", later)
            self.assertEqual(later.run("update"), (0, ""))
            self.assertEqual(later.run("check"), (0, ""))
            older = Mutant(other, [])
            make("older", older)
            self.assertIn("bp_device_table.prepare is gone", older.run("check")[1])
            record = subprocess.run([sys.executable, str(TOOLS / "abi_layout.py"), "show", "--abi", str(older.abi), "--cc",
                                     COMPILER], capture_output=True, text=True, check=True).stdout
            (later.abi / "released" / "0.older.txt").write_text(record)
            self.assertEqual(later.run("check"), (0, ""))

    def test_compiler_errors_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            status, text = Mutant(folder, [("  double eps;", "  dubble eps;")]).run("check")
            self.assertEqual(status, 1)
            self.assertIn("the header doesn't compile", text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc", default=COMPILER)
    arguments, rest = parser.parse_known_args()
    COMPILER = arguments.cc
    unittest.main(argv=[sys.argv[0], *rest])
