#!/usr/bin/env python3
"""Tries bench_rivals on programs that answer with known figures: bench_rivals_test.py"""
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
import xml.etree.ElementTree

SCRIPT = pathlib.Path(__file__).resolve().parent / "bench_rivals"
LOGITS = [0.0, 1.0, 3.0]  # of three tokens; their log-probabilities are these less log(1 + e + e^3)

# Two windows of 8 tokens, 3 rows each, as llama-perplexity writes them: scale, least, then 16-bit steps above the least.
PROGRAMS = {
    "backplane": """
        import json, sys
        if sys.argv[1] == "tokenize":
            print(json.dumps({"ids": [9]}))
        elif sys.argv[1] == "score":
            for line in map(json.loads, sys.stdin):
                assert line["ids"][0] == 9 and line["positions"] == [4, 5, 6], line
                print(json.dumps({"logits": [%r] * 3}))
        else:
            cases = [("prefill", 512, 1, 0, 1000), ("decode", 128, 1, 0, 100), ("decode", 128, 1, 1024, 90),
                     ("decode", 64, 8, 64, 800)]
            print(json.dumps({"model": "m", "weight_type": "Q4_1", "threads": 2, "device": "d", "kv_type": "F16",
                "roofs": {"read": {"bytes_per_s": 1e10}},
                "results": [dict(zip(("kind", "tokens", "batch", "depth", "tokens_per_s"), case)) for case in cases]}))
        """ % LOGITS,
    "llama-bench": """
        import json, sys
        fast = sys.argv[sys.argv.index("-fa") + 1] == "1"
        for prompt, tokens, depth, speed in ((512, 0, 0, 250), (512, 0, 1024, 1), (0, 128, 0, 50), (0, 128, 1024, 30)):
            speed = speed if fast != (depth == 1024) else speed / 2
            print(json.dumps({"n_prompt": prompt, "n_gen": tokens, "n_depth": depth, "samples_ts": [speed] * 3}))
        """,
    "llama-batched-bench": """
        import json
        print(json.dumps({"pl": 8, "speed_tg": 200.0}))
        """,
    "llama-perplexity": """
        import math, struct, sys
        normal = math.log(1 + math.exp(1) + math.exp(3))
        row = struct.pack("<ff", 3 / 65535, -normal) + struct.pack("<4H", 0, 21845, 65535, 0)
        with open(sys.argv[sys.argv.index("--kl-divergence-base") + 1], "wb") as out:
            out.write(b"_logits_" + struct.pack("<iii", 8, 3, 2) + struct.pack("<16i", *range(16)) + row * 6)
        """,
}


class BenchRivals(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="bench rivals ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        for name, text in PROGRAMS.items():
            path = self.folder / name
            path.write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
            path.chmod(0o755)

    def run_script(self, *more):
        command = [sys.executable, SCRIPT, "--backplane", self.folder / "backplane", "--llama", self.folder, "--model", "m",
                   "--rounds", "2", "--batch", "8", *more]
        return subprocess.run([str(part) for part in command], capture_output=True, text=True)

    def test_takes_the_best_setting_of_each_column(self):
        out = self.folder / "out.json"
        drawing = self.folder / "out.svg"
        done = self.run_script("--json", out, "--svg", drawing)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row["column"]: row for row in json.loads(out.read_text())["columns"]}
        self.assertEqual({name: (row["ratio"], row["setting"][:5]) for name, row in rows.items()},
                         {"prefill 512": (4, "-fa 1"), "decode, depth 0": (2, "-fa 1"), "decode, depth 1024": (3, "-fa 0"),
                          "batch 8": (4, "-fa 0")})
        self.assertIn("4.00x", done.stdout)
        words = [node.text for node in xml.etree.ElementTree.parse(drawing).iter() if node.text]
        self.assertIn("250 tokens/s", words)

    def test_compares_first(self):
        agreement = self.run_script().stdout.splitlines()[0]
        self.assertIn("top-1 agreement 6 of 6 positions", agreement)
        self.assertLess(float(agreement.split("mean KL ")[1].split(",")[0]), 1e-4)

    def test_says_that_nothing_was_compared(self):
        (self.folder / "llama-perplexity").unlink()
        self.assertIn("not compared: there is no llama-perplexity", self.run_script().stdout)

    def test_reports_a_program_that_fails(self):
        (self.folder / "llama-bench").write_text("#!/bin/sh\necho no such model >&2\nexit 1\n")
        done = self.run_script("--no-compare")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such model", done.stderr)


if __name__ == "__main__":
    unittest.main()
