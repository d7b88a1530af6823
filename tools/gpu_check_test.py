#!/usr/bin/env python3
"""Tries gpu_check with programs that stand in for backplane, nvcc, compute-sanitizer and a Python with transformers:
gpu_check_test.py."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.dont_write_bytecode = True
TOOLS = pathlib.Path(__file__).resolve().parent
SCRIPT = TOOLS / "gpu_check"
LOADER = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPT))
SPEC = importlib.util.spec_from_loader("gpu_check", LOADER)
gpu_check = importlib.util.module_from_spec(SPEC)
sys.modules["gpu_check"] = gpu_check
LOADER.exec_module(gpu_check)
import report
import targets


class WithFolder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="gpu check ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(f"#!{sys.executable} -IS\n{textwrap.dedent(text)}")
        path.chmod(0o755)
        return path


# --- the report ---------------------------------------------------------------------------------------------------------------


def case(kind, tokens, batch, depth, speed):
    return {"kind": kind, "tokens": tokens, "batch": batch, "depth": depth, "tokens_per_s": speed, "spread": 0.01}


def part(*cases):
    return {"status": "ok", "kv_type": "BF16", "kernels": ["LINEAR decode: few, 1 token"], "cases": list(cases)}


def recorded():
    """As a run leaves it, with round figures."""
    peer = {"status": "slow", "reason": "ended at its limit", "device": "cuda", "versions": {"torch": "2"}, "cases": {
        "prefill 4096": {"kind": "prefill", "tokens": 1, "batch": 1, "depth": 4096,
                         "settings": {"growing cache": {"tokens_per_s": 20000.0}}},
        "batch 1": {"kind": "decode", "tokens": 64, "batch": 1, "depth": 512, "settings": {
            "growing cache": {"tokens_per_s": 50.0}, "fixed cache": {"tokens_per_s": 100.0}}},
        "batch 32": {"kind": "decode", "tokens": 32, "batch": 32, "depth": 512,
                     "settings": {"growing cache": {"reason": "oom"}}}}}
    return {"version": 1, "not_done": ["sanitize: racecheck"], "steps": {
        "machine": {"machine": {"status": "ok", "gpu": "Card", "cores": 16}},
        "build": {"build": {"status": "ok", "configure_s": 5, "build_s": 90, "architectures": "90", "warnings": []}},
        "conform": {"cuda:0": {"status": "failed", "reason": "1 cases failed", "passed": 10, "failed": 1, "suspect": 0,
                               "skipped": 2, "failures": [{"name": "NORM/x", "reason": "E = 9", "replay": ""}]}},
        "tokens": {"gqa-64 F32 cuda:0": {
            "status": "ok", "tokens": 32, "same": 7, "tolerance": 0.01, "largest_error": 1e-5, "faults": [],
            "first_difference": [{"position": 7, "expected": 1, "got": 2, "margin": 0.001, "more": False}],
            "as_prompt": {"tokens": 32, "same": 32, "differences": []}}},
        "sanitize": {"memcheck": {"status": "ok", "filters": {"NORM": {"status": 0, "errors": 0, "passed": 3, "failed": 0}}}},
        "bench": {
            "roofs": {"status": "ok", "copy_bytes_per_s": 4e12, "read_bytes_per_s": 4.2e12, "matmul_flops_per_s": 7e14},
            "llama-3.1-8b BF16 batch 1": part(case("prefill", 4096, 1, 0, 40000.0), case("decode", 64, 1, 512, 230.0)),
            "llama-3.1-8b BF16 batch 32": part(case("decode", 32, 32, 512, 5000.0)),
            "llama-3.1-8b transformers": peer,
            "gpt2-124m BF16 batch 1": part(case("prefill", 1000, 1, 0, 1e5), case("decode", 64, 1, 512, 4000.0)),
            # 16 layers of 8 heads of 64 in bf16: 32 KiB a token, so 7680 tokens of 8 sequences are 2013 MB, in 0.8 ms.
            "llama-3.2-1b BF16 attention, depth 512": part(case("decode", 32, 8, 512, 8 / 1e-3)),
            "llama-3.2-1b BF16 attention, depth 8192": part(case("decode", 32, 8, 8192, 8 / 1.8e-3)),
        }}}


class Report(WithFolder):
    def test_targets(self):
        found = {each["target"].split(",")[0]: each for each in targets.targets(recorded())}
        self.assertEqual(found["8B"]["verdict"], "met")  # the last of that name: the prompt
        decode = targets.targets(recorded())[1]
        self.assertAlmostEqual(decode["got"], (15.009e9 + 544.5 * 131072) * 230 / 4e12, delta=0.001)
        self.assertEqual((decode["verdict"], found["GPT-2"]["verdict"]), ("met", "missed"))
        self.assertAlmostEqual(found["decode attention"]["got"], 8 * 7680 * 32768 / 0.8e-3 / 4e12, places=6)
        self.assertEqual(found["decode attention"]["verdict"], "missed")

    def test_small_caches_do_not_count(self):
        data = recorded()
        for depth in (512, 8192):
            one = data["steps"]["bench"][f"llama-3.2-1b BF16 attention, depth {depth}"]["cases"][0]
            one["batch"], one["depth"] = 1, depth // 8
        self.assertEqual(targets.targets(data)[0]["verdict"], "not measured")

    def test_compares_equal_cases_only(self):
        rows = {(row["kind"], row["batch"]): row for row in targets.rows(recorded()) if row["shape"] == "llama-3.1-8b"}
        self.assertEqual(rows["prefill", 1]["ratio"], 2)
        self.assertEqual((rows["decode", 1]["ratio"], rows["decode", 1]["peer"]), (2.3, (100.0, "fixed cache")))
        self.assertIsNone(rows["decode", 32]["ratio"])

    def test_writes_it_from_the_results(self):
        (self.folder / "gpu_check.json").write_text(json.dumps(recorded()))
        ran = subprocess.run([sys.executable, SCRIPT, "report", self.folder], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        text = (self.folder / "gpu_check.md").read_text()
        for words in ("| gpu | Card |", "roof: copy", "| cuda:0 | 10 | 1 |", "NORM/x: E = 9", "2 instead of 1, margin 0.001",
                      "| memcheck `NORM` | 3 |", "2.30x", "batch 32, growing cache: oom", "sanitize: racecheck", "| missed |"):
            self.assertIn(words, text)

    def test_tells_of_steps_that_were_not_launched(self):
        data = recorded()
        one = data["steps"]["bench"]["llama-3.1-8b BF16 batch 32"]["cases"][0]
        one.update(runs=[1.0, 1.0, 1.0], steps_launched=96, steps_recorded=0)
        self.assertNotIn("launched", report.text(data))
        one.update(steps_launched=90, steps_recorded=6)
        self.assertIn("batch 32: 90 of 96 steps launched from recordings, 6 recorded meanwhile", report.text(data))

    def test_nothing_measured_is_no_error(self):
        self.assertIn("# GPU check", report.text({"version": 1, "steps": {}}))


# --- a whole run -------------------------------------------------------------------------------------------------------------

BACKPLANE = """
    import json, os, pathlib, sys
    words = sys.argv[1:]
    with open(os.environ["CALLS"], "a") as file:
        print(*words, file=file)
    def after(name, default=None):
        return words[words.index(name) + 1] if name in words else default
    device = after("--device", "")
    if words[0] == "devices":
        lost = os.environ.get("LOST")
        print(json.dumps({"devices": [{"name": name, "available": name != lost, "reason": "no memory" if name == lost else None}
                                      for name in ("cuda:0", "cuda:0-bf16")]}))
    elif words[0] == "conform":
        print("1 passed, 0 failed, 0 skipped")
        if "--json" in words:
            case = {"name": "NORM/a", "op": "NORM", "verdict": "passed", "error": 0.5, "seconds": 0}
            pathlib.Path(after("--json")).write_text(json.dumps(
                {"passed": 1, "failed": 0, "suspect": 0, "skipped": 0, "cases": [case]}))
    elif words[0] == "run":
        third = os.environ.get("THIRD", "7") if device.endswith("bf16") else "7"
        tops = [[(1, -0.1), (2, -3.0)], [(5, -0.1), (2, -3.0)], [(7, -0.7), (8, -0.701), (9, -4.0)]]
        ids = [1, 5, int(third)]
        print(json.dumps({"ids": ids, "steps": [{"top": [{"id": i, "logprob": p} for i, p in top]} for top in tops]}))
        if device != "cpu:f32":
            assert after("--fallback") == "deny", words
    elif words[0] == "score":
        for line in map(json.loads, sys.stdin):
            if line["positions"] == "last":
                print(json.dumps({"logits": [[1.0, -1.0] * 500]}))
            else:
                assert line["positions"] == [23, 24, 25], line
                print(json.dumps({"top": [[{"id": 1, "logit": 4.0}, {"id": 2, "logit": 1.0}]] * 3}))
    elif words[0] == "bench":
        assert after("--fallback") == "deny" and pathlib.Path(words[1]).stat().st_size > 1e6, words
        cases = []
        if after("--prefill") != "none":
            cases.append(["prefill", int(after("--prefill")), 1, 0, 1e5])
            cases.append(["decode", int(after("--decode")), 1, int(after("--depth")), 1e3])
        else:
            cases.append(["decode", int(after("--batch-tokens")), int(after("--batch")), int(after("--batch-depth")), 2e3])
        assert after("--step-tokens") == "64", words
        print(*range(30), "steps are no longer recorded", sep="\\n", file=sys.stderr)
        if os.environ.get("BREAK") and "--batch" in words and after("--batch") == os.environ["BREAK"]:
            sys.exit("the device was lost")
        print(json.dumps({"kv_type": "BF16", "weight_type": "BF16", "load_s": 1, "fallbacks": [], "kernels": [], "skipped": [],
            "step_tokens": 64,
            "results": [dict(zip(("kind", "tokens", "batch", "depth", "tokens_per_s"), each), spread=0) for each in cases]}))
    """

SANITIZER = """
    import subprocess, sys
    at = next(i for i, word in enumerate(sys.argv) if word.endswith("backplane"))
    print("========= COMPUTE-SANITIZER")
    status = subprocess.run(sys.argv[at:]).returncode
    tool = sys.argv[sys.argv.index("--tool") + 1]
    print("========= ERROR SUMMARY: %d errors" % (tool == "initcheck"), flush=True)
    sys.exit(86 if tool == "initcheck" else status)
    """

PYTHON = """
    import json, sys
    job = json.loads(sys.argv[2])
    assert sys.argv[1].endswith("transformers_worker.py") and job["shape"]["hidden"] == 256, sys.argv
    print("a library's chatter")
    print(json.dumps({"device": "cuda", "versions": {"torch": "2"}, "load_s": 1}))
    print(json.dumps({"case": "batch 2", "setting": "growing cache", "tokens_per_s": 500.0}))
    """


# What it makes is a probe that knows its card.
NVCC = """
    import pathlib, sys
    if "--version" in sys.argv:
        sys.exit(print("release 13"))
    path = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
    rates = '{"copy_bytes_per_s": 1e9, "read_bytes_per_s": 2e9, "matmul_flops_per_s": 1e12}'
    path.write_text(f"#!/bin/sh\\necho '{rates}'\\n")
    path.chmod(0o755)
    """


class WholeRun(WithFolder):
    def setUp(self):
        super().setUp()
        self.backplane = self.program("backplane", BACKPLANE)
        self.python = self.program("python", PYTHON)
        self.program("compute-sanitizer", SANITIZER)
        self.program("nvcc", NVCC)
        self.out = self.folder / "out"

    def run_script(self, *more, **environment):
        program = ["--build", self.folder / "build"] if "--jobs" in more else ["--program", self.backplane]
        command = [sys.executable, SCRIPT, "run", "--out", self.out, *program, "--shapes", "tiny", "--python", self.python,
                   "--token-shapes", "gqa-64", "--token-types", "Q4_0", "--tokens", "3", "--sanitized", "NORM",
                   "--scratch", self.folder / "scratch", *more]
        known = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "CALLS": str(self.folder / "calls")}
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**known, **environment})

    def data(self):
        return json.loads((self.out / "gpu_check.json").read_text())["steps"]

    def calls(self):
        return [line.split()[0] for line in (self.folder / "calls").read_text().splitlines()]

    def test_does_all_steps_and_goes_on(self):
        ran = self.run_script("--steps", "build,conform,tokens,sanitize,sanitize_rest")
        self.assertEqual(ran.returncode, 1, ran.stderr)  # initcheck's error
        data = self.data()
        self.assertEqual({name: part["status"] for name, part in data["sanitize"].items()},
                         {"memcheck": "ok", "racecheck": "ok", "initcheck": "failed", "synccheck": "ok"})
        self.assertEqual(data["sanitize"]["initcheck"]["filters"]["NORM"]["errors"], 1)
        self.assertEqual([data["conform"][device]["passed"] for device in ("cuda:0", "cuda:0-bf16")], [1, 1])
        self.assertEqual(data["tokens"]["gqa-64 Q4_0 cuda:0"]["same"], 3)
        before = len(self.calls())
        (self.folder / "scratch" / ".backplane_gpu_check_killed").mkdir()
        (self.folder / "scratch" / "gpu_check_out").mkdir()  # somebody's own
        self.run_script("--steps", "build,conform,tokens,bench")
        self.assertEqual(set(self.calls()[before:]), {"devices", "bench"})
        self.assertEqual([left.name for left in (self.folder / "scratch").iterdir()], ["gpu_check_out"])
        bench = self.data()["bench"]
        self.assertEqual(bench["roofs"]["copy_bytes_per_s"], 1e9)
        self.assertEqual(bench["tiny transformers"]["cases"]["batch 2"]["settings"]["growing cache"]["tokens_per_s"], 500)
        said = bench["tiny BF16 batch 2"]["said"]
        self.assertEqual((len(said), said[0], said[-1]), (20, "11", "steps are no longer recorded"))
        for words in ("4.00x", "- tiny BF16 batch 2: steps are no longer recorded"):
            self.assertIn(words, (self.out / "gpu_check.md").read_text())

    def test_does_again_what_failed(self):
        self.run_script("--steps", "conform,sanitize,sanitize_rest")
        before = len(self.calls())
        self.assertEqual(self.run_script("--steps", "conform,sanitize,sanitize_rest", "--retry").returncode, 1)
        self.assertEqual(self.calls()[before:], ["conform"])  # under initcheck
        self.run_script("--steps", "sanitize,sanitize_rest", "--again", "sanitize")
        self.assertEqual(self.calls()[before:], ["conform"] * 3)  # under memcheck and racecheck

    def test_without_a_sanitizer_something_is_left(self):
        (self.folder / "compute-sanitizer").unlink()
        ran = self.run_script("--steps", "sanitize")
        self.assertEqual((ran.returncode, self.data().get("sanitize")), (3, None), ran.stderr)
        self.assertIn("- sanitize: memcheck: there is no compute-sanitizer on PATH", (self.out / "gpu_check.md").read_text())

    def test_all_that_is_tried_of_ours_comes_before_transformers(self):
        self.run_script("--steps", "bench")
        names = list(self.data()["bench"])
        self.assertEqual((names[0], names[-1]), ("roofs", "tiny transformers"))

    def test_no_transformers_is_no_failure(self):
        self.program("python", "print('{\"skip\": \"No module named torch\"}')")
        self.assertEqual(self.run_script("--steps", "bench").returncode, 0)
        self.assertEqual(self.data()["bench"]["tiny transformers"]["reason"], "no transformers: No module named torch")

    def test_a_lost_device_loses_one_part(self):
        ran = self.run_script("--steps", "bench", BREAK="4")
        self.assertEqual(ran.returncode, 1, ran.stderr)
        bench = self.data()["bench"]
        self.assertIn("the device was lost", bench["tiny BF16 batch 4"]["reason"])
        self.assertEqual(bench["tiny Q4_K batch 2"]["status"], "ok")

    def test_near_ties_are_shown_and_others_are_faults(self):
        self.run_script("--steps", "tokens", THIRD="8")
        near = self.data()["tokens"]["gqa-64 Q4_0 cuda:0-bf16"]
        self.assertEqual((near["status"], near["same"], near["first_difference"][0]["got"]), ("ok", 2, 8))
        self.run_script("--steps", "tokens", "--again", "tokens", THIRD="9")
        fault = self.data()["tokens"]["gqa-64 Q4_0 cuda:0-bf16"]
        self.assertEqual((fault["status"], fault["faults"][0]["position"]), ("failed", 2))

    def test_without_a_device_nothing_is_tried(self):
        ran = self.run_script("--device", "other")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("other:0 is not available", self.data()["build"]["devices"]["reason"])
        self.assertEqual(set(self.calls()), {"devices"})

    def test_both_devices_have_to_start(self):
        self.assertEqual(self.run_script(LOST="cuda:0-bf16").returncode, 1)
        self.assertEqual(self.data()["build"]["devices"]["reason"], "cuda:0-bf16 is not available: no memory")
        self.assertEqual(set(self.calls()), {"devices"})

    def test_a_build_that_fails_ends_it(self):
        self.program("cmake", "import sys; sys.exit('attention.cu(7): error' if '--build' in sys.argv else 0)")
        self.assertEqual(self.run_script("--jobs", "1").returncode, 1)
        data = self.data()
        self.assertEqual((set(data), set(data["build"])), ({"machine", "build"}, {"build"}))
        self.assertIn("attention.cu(7): error", data["build"]["build"]["reason"])

    def test_what_is_left_comes_before_what_failed(self):
        self.run_script("--steps", "sanitize_rest")
        ran = self.run_script("--steps", "sanitize_rest,conform", "--budget", "1")
        self.assertEqual(ran.returncode, 3, ran.stderr)

    def test_says_what_is_left(self):
        ran = self.run_script("--steps", "conform", "--budget", "1")
        self.assertEqual(ran.returncode, 3, ran.stderr)
        self.assertIn("conform: cuda:0-bf16", (self.out / "gpu_check.md").read_text())


if __name__ == "__main__":
    unittest.main()
