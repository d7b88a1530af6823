#!/usr/bin/env python3
"""Tries bench_rivals on programs that answer with known figures: bench_rivals_test.py"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
import xml.etree.ElementTree

SCRIPT = pathlib.Path(__file__).resolve().parent / "bench_rivals"
WORKER = SCRIPT.parent / "rivals" / "engine_worker.py"
sys.dont_write_bytecode = True
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

# ik_llama.cpp's have other options and other output.
IK_PROGRAMS = {
    "llama-bench": """
        import json, sys
        fast = sys.argv[sys.argv.index("-rtr") + 1] == "1" and sys.argv[sys.argv.index("-fa") + 1] == "0"
        assert "-d" not in sys.argv and sys.argv[sys.argv.index("-gp") + 1] == "1024,128"
        rows = [(512, 0, 500), (0, 128, 40), (1024, 128, 45)]
        print(json.dumps([{"n_prompt": prompt, "n_gen": tokens, "samples_ts": [speed * (1 if fast else 0.5)] * 3}
                          for prompt, tokens, speed in rows], indent=1))
        """,
    "llama-batched-bench": """
        import sys
        print("|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |", file=sys.stderr)
        print("|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|", file=sys.stderr)
        print("|    64 |     64 |    8 |   1024 |    0.800 |   640.00 |    5.120 |   100.00 |    5.920 |   172.97 |", file=sys.stderr)
        open("llama.log", "w").write("left where it ran")
        """,
}

# Stands in for a Python that has the engines: what engine_worker.py would say.
PYTHON = """
    import json, sys
    worker, engine, what = sys.argv[1:4]
    assert worker.endswith("engine_worker.py"), worker
    if engine == "openvino":
        sys.exit("ModuleNotFoundError: No module named 'openvino_genai'")
    print("a library's chatter")
    if what == "prepare":
        print("{}")
    else:
        job = json.loads(sys.argv[4])
        assert job["cases"]["batch 8"] == {"kind": "decode", "tokens": 64, "batch": 8, "depth": 64}, job
        print(json.dumps({"setting": "int8", "speeds": {"prefill 512": 400.0, "decode, depth 0": 25.0},
                          "reasons": {"batch 8": "would take 999 s a round"}}))
    """


class BenchRivals(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="bench rivals ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.write_programs(self.folder, PROGRAMS)

    @staticmethod
    def write_programs(folder, programs):
        folder.mkdir(exist_ok=True)
        for name, text in programs.items():
            path = folder / name
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
        self.assertEqual({name: (row["ratio"], row["rivals"]["llama.cpp"]["setting"][:5]) for name, row in rows.items()},
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

    def test_reports_our_program_that_fails(self):
        (self.folder / "backplane").write_text("#!/bin/sh\necho no such model >&2\nexit 1\n")
        done = self.run_script("--no-compare")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such model", done.stderr)

    def test_goes_on_without_what_a_rival_fails_at(self):
        (self.folder / "llama-bench").write_text("#!/bin/sh\necho loading >&2\necho 'ASSERT(S > 0) failed' >&2\nexit 134\n")
        out = self.folder / "out.json"
        done = self.run_script("--no-compare", "--json", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row["column"]: row["rivals"]["llama.cpp"] for row in json.loads(out.read_text())["columns"]}
        self.assertEqual(rows["prefill 512"], {"reason": "llama-bench failed (134): ASSERT(S > 0) failed"})
        self.assertEqual(rows["batch 8"]["ratio"], 4)

    def test_compares_with_the_best_rival_of_each_column(self):
        self.write_programs(self.folder / "ik", IK_PROGRAMS)
        self.write_programs(self.folder / "py", {"python": PYTHON})
        (self.folder / "model.gguf").write_text("")
        out, drawing = self.folder / "out.json", self.folder / "out.svg"
        done = self.run_script("--no-compare", "--ik", self.folder / "ik", "--engines", "ctranslate2,openvino", "--python",
                               self.folder / "py" / "python", "--weights", self.folder / "weights", "--model",
                               self.folder / "model.gguf", "--json", out, "--svg", drawing)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row["column"]: row for row in json.loads(out.read_text())["columns"]}
        self.assertEqual({name: (row["best"], row["ratio"]) for name, row in rows.items()},
                         {"prefill 512": ("ik_llama.cpp", 2), "decode, depth 0": ("llama.cpp", 2),
                          "decode, depth 1024": ("ik_llama.cpp", 2), "batch 8": ("llama.cpp", 4)})
        self.assertEqual(rows["prefill 512"]["rivals"]["ik_llama.cpp"]["setting"], "-fa 0 -rtr 1 -t " + self.threads(done))
        self.assertEqual(rows["batch 8"]["rivals"]["ik_llama.cpp"]["speed"], 100)
        self.assertEqual(rows["prefill 512"]["rivals"]["ctranslate2"]["ratio"], 2.5)
        self.assertEqual(rows["batch 8"]["rivals"]["ctranslate2"], {"reason": "would take 999 s a round"})
        self.assertEqual(rows["decode, depth 1024"]["rivals"]["ctranslate2"], {"reason": "not measured"})
        self.assertIn("openvino_genai", rows["prefill 512"]["rivals"]["openvino"]["reason"])
        self.assertIn("would take 999 s a round", done.stdout)
        words = [node.text for node in xml.etree.ElementTree.parse(drawing).iter() if node.text]
        self.assertEqual(words.count("-"), 2 + 4)  # ctranslate2's columns, openvino's
        self.assertFalse(pathlib.Path("llama.log").exists())

    @staticmethod
    def threads(done):
        return done.stdout.split(" -t ")[1].split()[0]

    def test_refuses_what_it_does_not_know(self):
        self.assertIn("none of transformers", self.run_script("--engines", "onnx").stderr)
        self.assertIn("--weights", self.run_script("--engines", "openvino").stderr)


class Counted:
    """An engine on a clock of its own: so many seconds for each token of a prompt, and for each step of a reply."""

    def __init__(self, prompt, step):
        self.prompt, self.step, self.now, self.calls = prompt, step, 0.0, []

    def generate(self, prompts, new):
        self.calls.append((tuple(map(tuple, prompts)), new))
        self.now += self.prompt * sum(map(len, prompts)) + self.step * (new - 1)

    def clock(self):
        return self.now


class EngineWorker(unittest.TestCase):
    def setUp(self):
        spec = importlib.util.spec_from_file_location("engine_worker", WORKER)
        self.worker = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.worker)

    def measure(self, engine, seconds=1000, **case):
        return self.worker.measure_case(engine, case, 3, seconds, engine.clock)

    def test_counts_prompts_until_their_first_token(self):
        self.assertAlmostEqual(self.measure(Counted(0.001, 0.1), kind="prefill", tokens=1, batch=1, depth=512), 1000)

    def test_counts_replies_without_their_prompt(self):
        self.assertAlmostEqual(self.measure(Counted(0.001, 0.1), kind="decode", tokens=128, batch=1, depth=1024), 10)
        self.assertAlmostEqual(self.measure(Counted(0.001, 0.1), kind="decode", tokens=64, batch=8, depth=64), 80)

    def test_gives_up_before_it_takes_too_long(self):
        engine = Counted(0.001, 1)
        with self.assertRaisesRegex(self.worker.TooSlow, "would take 384 s"):
            self.measure(engine, seconds=100, kind="decode", tokens=128, batch=1, depth=1)
        self.assertLess(engine.now, 10)

    def test_gives_no_prompt_twice(self):
        engine = Counted(0.001, 0.1)
        self.measure(engine, kind="decode", tokens=4, batch=4, depth=16)
        rows = [row for prompts, _ in engine.calls for row in prompts]
        self.assertEqual(len({row[0] for row in rows}), len(rows))

    def test_prepares_once_and_leaves_no_half(self):
        with tempfile.TemporaryDirectory() as holder:
            folder = pathlib.Path(holder) / "weights"

            class Engine:
                prepared, fails = "w", True

                @classmethod
                def prepare(cls, model, to):
                    to.mkdir()
                    (to / "part").write_text(str(model))
                    if cls.fails:
                        raise OSError("disk full")

            with self.assertRaises(OSError):
                self.worker.ensure(Engine, "m", folder)
            self.assertFalse((folder / "w").exists())
            Engine.fails = False
            self.worker.ensure(Engine, "m", folder)
            Engine.fails = True
            self.worker.ensure(Engine, "m", folder)
            self.assertEqual((folder / "w" / "part").read_text(), "m")


if __name__ == "__main__":
    unittest.main()
