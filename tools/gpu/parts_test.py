#!/usr/bin/env python3
"""Tries the parts of gpu_check one by one, without backplane and without a GPU: parts_test.py."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import limits
import model_shapes
import results
import step_bench
import step_build
import step_conform
import step_tokens
import transformers_worker
import work


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


# --- time ---------------------------------------------------------------------------------------------------------------------


class Limits(WithFolder):
    def test_ends_what_takes_too_long_with_all_that_it_started(self):
        done = limits.run(["sh", "-c", "sleep 600 & echo $!; wait"], 2)
        self.assertTrue(done.timed_out)
        try:
            state = pathlib.Path(f"/proc/{int(done.out)}/stat").read_text().split()[2]
        except FileNotFoundError:
            state = "gone"
        self.assertIn(state, ("gone", "Z", "X"))

    def test_goes_on_where_a_killed_program_does_not_end(self):
        process = unittest.mock.Mock(pid=2**22 + 1)  # no process has it
        process.wait.side_effect = subprocess.TimeoutExpired("p", limits.KILLED_SECONDS)
        with contextlib.redirect_stderr(io.StringIO()) as told:
            limits.end_group(process)
        self.assertIn(f"process {process.pid} hasn't ended", told.getvalue())
        process.wait.assert_called_once_with(timeout=limits.KILLED_SECONDS)

    def test_says_what_a_program_said(self):
        with self.assertRaisesRegex(limits.Failed, "status 3: no such device"):
            limits.need([self.program("p", "import sys; print('no such device', file=sys.stderr); sys.exit(3)")], 20)

    def test_gives_input_and_tells_lines(self):
        lines = []
        done = limits.run([self.program("p", "import sys; print(*reversed(sys.stdin.read().split()), sep='\\n')")], 20,
                          on_line=lines.append, input="a b")
        self.assertEqual((done.status, lines), (0, ["b", "a"]))


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Parts(WithFolder):
    def results(self, seconds=100.0):
        self.clock = Clock()
        self.reports = []
        return results.Results(self.folder, limits.Budget(seconds, self.clock), self.reports.append)

    def test_goes_on_where_it_stopped(self):
        first = self.results()
        first.part("bench", "a", 10, lambda seconds: {"speed": 1})
        again = self.results()
        self.assertEqual(again.part("bench", "a", 10, lambda seconds: self.fail("done twice"))["speed"], 1)
        again.forget("bench")
        self.assertEqual(again.part("bench", "a", 10, lambda seconds: {"speed": 2})["speed"], 2)

    def test_other_sources_are_another_result(self):
        self.results().part("bench", "a", 10, lambda seconds: {"speed": 1})
        self.results().part("conform", "b", 10, lambda seconds: {"passed": 1})
        kept = results.Results(self.folder, limits.Budget(100), self.reports.append,
                               lambda step, part: "" if step == "conform" else "c0ffee")
        self.assertEqual(kept.part("conform", "b", 10, lambda seconds: self.fail("done twice"))["passed"], 1)
        self.assertEqual(kept.data["steps"]["bench"], {})
        self.assertEqual(kept.part("bench", "a", 10, lambda seconds: {"speed": 2})["sources_hash"], "c0ffee")
        aside, = self.folder.glob("gpu_check-*.json")
        self.assertEqual(json.loads(aside.read_text())["steps"]["bench"]["a"]["speed"], 1)

    def test_a_fault_loses_only_itself(self):
        kept = self.results()

        def fails(seconds):
            error = limits.Failed("half of it")
            error.found = {"half": 1}
            raise error

        kept.part("bench", "a", 10, fails)
        kept.part("bench", "b", 10, lambda seconds: 1 / 0)
        kept.part("bench", "c", 10, lambda seconds: {"speed": 3})
        bench = json.loads(kept.path.read_text())["steps"]["bench"]
        self.assertEqual({name: part["status"] for name, part in bench.items()}, {"a": "failed", "b": "failed", "c": "ok"})
        self.assertEqual((bench["a"]["half"], len(self.reports)), (1, 3))
        self.assertIn("ZeroDivisionError", bench["b"]["reason"])

    def test_what_was_too_slow_by_itself_is_not_tried_again(self):
        def slow(seconds):
            raise limits.TooSlow(f"ended after {seconds:.0f} s")

        kept = self.results(100)
        self.assertEqual(kept.part("bench", "a", 10, slow)["status"], "slow")
        self.assertIsNone(kept.part("bench", "b", 200, slow))
        self.assertEqual((kept.step("bench")["b"]["status"], kept.missed), ("cut", ["bench: b"]))

    def test_what_was_cut_keeps_what_it_found_and_is_done_again(self):
        def cut(seconds):
            error = limits.TooSlow("ended")
            error.found = {"passed": 7}
            raise error

        self.assertIsNone(self.results(100).part("conform", "a", 150, cut, share=results.LARGE_SHARE))
        kept = self.results(100)
        self.assertEqual(kept.step("conform")["a"]["passed"], 7)
        self.assertEqual(kept.part("conform", "a", 90, lambda seconds: {"passed": 9})["passed"], 9)
        self.assertEqual(json.loads(kept.path.read_text())["steps"]["conform"]["a"]["status"], "ok")

    def test_what_is_worth_little_when_cut_wants_more_time(self):
        kept = self.results(100)
        self.assertIsNone(kept.part("conform", "a", 200, lambda seconds: self.fail("started"), share=results.LARGE_SHARE))

    def test_forgets_what_failed_or_was_slow(self):
        kept = self.results(100)
        for name, error in (("a", limits.Failed("x")), ("b", limits.TooSlow("x")), ("c", results.Skip("x"))):
            kept.part("bench", name, 10, unittest.mock.Mock(side_effect=error))
        kept.part("bench", "d", 10, lambda seconds: {})
        kept.forget_failures()
        self.assertEqual(list(kept.step("bench")), ["c", "d"])

    def test_starts_nothing_at_the_end(self):
        kept = self.results(100)
        self.clock.now = 70
        self.assertIsNone(kept.part("bench", "long", 200, lambda seconds: self.fail("started")))
        self.assertEqual(kept.part("bench", "short", 40, lambda seconds: {"got": seconds})["got"], 30)


# --- what programs say --------------------------------------------------------------------------------------------------------


def done(out, status=0, err="", timed_out=False):
    return limits.Done(status, out, err, 1.0, timed_out)


class Sources(WithFolder):
    def test_are_known_without_git(self):
        (self.folder / step_build.PACKED).write_text("c0ffee with changes\n")
        with unittest.mock.patch.object(step_build, "first_line", return_value=None):
            self.assertEqual(step_build.sources(self.folder), "as packed: c0ffee with changes")
            self.assertIn("not known", step_build.sources())


class Hashes(WithFolder):
    def setUp(self):
        super().setUp()
        for name in ("core/a.cc", "core/a_test.cc", "core/a.md", "tools/gpu/roofs.cu"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(name)

    def hash(self, step="conform", part="cuda:0", program=None):
        step_build.hash_of.cache_clear()
        self.addCleanup(step_build.hash_of.cache_clear)
        options = types.SimpleNamespace(given_program=program is not None, program=program)
        with unittest.mock.patch.object(step_build, "REPOSITORY", self.folder):
            return step_build.hash_for(options, step, part)

    def test_change_with_what_results_come_of(self):
        before, roofs = self.hash(), self.hash("bench", "roofs")
        (self.folder / "core" / "a_test.cc").write_text("more")
        (self.folder / "core" / "a.md").unlink()
        self.assertEqual(self.hash(), before)
        (self.folder / "core" / "a.cc").rename(self.folder / "core" / "b.cc")
        renamed = self.hash()
        (self.folder / "core" / "b.cc").write_text("other")
        self.assertEqual(len({before, renamed, self.hash(), self.hash(program=self.folder / "core" / "b.cc")}), 4)
        self.assertEqual(self.hash("bench", "roofs"), roofs)
        (self.folder / "tools" / "gpu" / "roofs.cu").write_text("other")
        self.assertNotEqual(self.hash("bench", "roofs"), roofs)


class CuBLAS(WithFolder):
    def test_the_plugin_finds_it_where_the_probe_does(self):
        (self.folder / "bin").mkdir()
        library = self.folder / "lib64" / "libcublas.so.13"
        library.parent.mkdir(parents=True)
        library.touch()
        with unittest.mock.patch.object(step_build, "nvcc", return_value=str(self.folder / "bin" / "nvcc")):
            self.assertEqual(step_build.cublas(), library.resolve())
            with unittest.mock.patch.dict(os.environ, LD_LIBRARY_PATH="/other"):
                self.assertEqual(step_build.environment()["LD_LIBRARY_PATH"], f"{library.parent.resolve()}:/other")
        with unittest.mock.patch.object(step_build, "cublas", return_value=None):
            self.assertEqual(step_build.environment(), dict(os.environ))


class Sanitizer(unittest.TestCase):
    def test_counts(self):
        for summary, count in (("0 errors", 0), ("1 error", 1), ("12 errors (5 printed)", 12),
                               ("2 hazards displayed (1 error, 1 warning)", 2), (None, None)):
            self.assertEqual(step_conform.errors_of(summary), count)

    def test_tells_errors_from_failures(self):
        clean = step_conform.verdict_of(done("========= COMPUTE-SANITIZER\n5 passed, 0 failed, 1 skipped\n"
                                             "========= ERROR SUMMARY: 0 errors\n"))
        self.assertEqual((clean["errors"], clean["passed"], clean.get("reason")), (0, 5, None))
        race = step_conform.verdict_of(done("5 passed, 0 failed, 0 skipped\n========= Race reported between Write access\n"
                                            "========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)\n", 86))
        self.assertEqual((race["errors"], race["reports"][0]), (3, "========= Race reported between Write access"))
        broken = step_conform.verdict_of(done("", 1, "no such file"))
        self.assertIn("status 1: no such file", broken["reason"])
        none = step_conform.verdict_of(done("0 passed, 0 failed, 9 skipped\n========= ERROR SUMMARY: 0 errors\n", 6))
        self.assertEqual((none["none"], none.get("reason")), (True, None))
        nothing = step_conform.verdict_of(done("0 passed, 0 failed, 0 skipped\n========= ERROR SUMMARY: 0 errors\n", 6))
        self.assertEqual((nothing.get("none"), nothing["reason"]), (None, "no case has such a name"))

    def test_is_found_beside_nvcc(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, PATH="/nowhere"):
            for place in ("bin", "compute-sanitizer"):
                program = pathlib.Path(folder).resolve() / place / "compute-sanitizer"
                program.parent.mkdir()
                program.write_text("#!/bin/sh\n")
                program.chmod(0o755)
                with unittest.mock.patch.object(step_conform, "nvcc", return_value=f"{folder}/bin/nvcc"):
                    self.assertEqual(pathlib.Path(step_conform.sanitizer()).resolve(), program)
                program.unlink()

    def test_counts_what_conform_told_until_it_crashed(self):
        told = step_conform.Told()
        for line in ("cuda:0 against cpu:f64, seed 1", "passed  NORM/a (E = 0.1, 0.001 s)", "FAILED  NORM/b",
                     "        E = 12 at 3", "        seed 1; again: x", "suspect NORM/c: E = 2", "skipped NORM/d: why"):
            told.line(line)
        self.assertEqual(told.counts, {"passed": 2, "failed": 1, "suspect": 1, "skipped": 1})
        self.assertEqual(told.failures, [{"name": "NORM/b", "reason": "E = 12 at 3"}])


class Tokens(unittest.TestCase):
    def test_each_command_gets_the_time_that_is_left(self):
        clock, given = Clock(), []

        def need(command, seconds, **more):
            given.append(seconds)
            clock.now += 30
            return done('{"ids": [], "steps": []}')

        options = types.SimpleNamespace(program="p", plugins=lambda: [])
        with unittest.mock.patch.object(step_tokens, "need", need):
            budget = limits.Budget(120, clock)
            step_tokens.generate(options, "m", "cuda:0", [1], 4, budget)
            step_tokens.score(options, "m", "cuda:0", [], budget)
        self.assertEqual(given, [120, 90])

    def test_margins(self):
        top = {5: -0.5, 7: -0.75, 9: -3.0}
        self.assertEqual(step_tokens.margin_of(top, 7), (0.25, False))
        self.assertEqual(step_tokens.margin_of(top, 8), (2.5, True))
        found = step_tokens.differences([5, 5, 5], [top] * 3, [5, 7, 5])
        self.assertEqual([(each["position"], each["got"], each["margin"]) for each in found], [(1, 7, 0.25)])

    def test_bf16_may_differ_more(self):
        ends = [end for end in step_tokens.TOLERANCE if "cuda:0-bf16".endswith(end)]
        self.assertEqual(max(step_tokens.TOLERANCE[end] for end in ends), step_tokens.TOLERANCE["-bf16"])


# --- formulas and measurements ------------------------------------------------------------------------------------------------


class Work(unittest.TestCase):
    def test_bytes(self):
        llama = model_shapes.SHAPES["llama-3.1-8b"]
        norms = 65 * 4096
        self.assertEqual(work.weight_bytes(llama, "BF16"), 2 * (8030261248 - 128256 * 4096 - norms))
        self.assertEqual(work.weight_bytes(llama, "Q4_K") / work.weight_bytes(llama, "BF16"), 4.5 / 16)
        self.assertEqual(work.kv_bytes_per_token(llama, "BF16"), 128 * 1024)
        moved, flops = work.decode_step(llama, "BF16", "BF16", 4, 100, 1)
        self.assertEqual(moved, work.weight_bytes(llama, "BF16") + 4 * 101 * 128 * 1024)
        self.assertEqual(flops, 4 * (work.weight_bytes(llama, "BF16") + 4 * 32 * 4096 * 101))

    def test_a_head_that_is_the_embedding_counts(self):
        gpt2 = model_shapes.SHAPES["gpt2-124m"]
        self.assertEqual(work.elements(gpt2, head=True) - work.elements(gpt2, head=False), 50257 * 768)
        self.assertEqual(work.elements(gpt2, head=False), 12 * 12 * 768 * 768)

    def test_prompts_see_half_of_themselves(self):
        gpt2 = model_shapes.SHAPES["gpt2-124m"]
        _, flops = work.prompt(gpt2, "BF16", 3)
        layers, head = 2 * 12 * 12 * 768 * 768, 2 * 50257 * 768
        self.assertEqual(flops, 3 * layers + head + 4 * 12 * 768 * (1 + 2 + 3))


class Bench(unittest.TestCase):
    def test_does_less_where_prompts_are_slow(self):
        self.assertEqual(step_bench.affordable(256, 512, 1e6, 150), (3, 512))
        self.assertEqual(step_bench.affordable(256, 512, 4000, 150), (1, 512))
        self.assertEqual(step_bench.affordable(256, 512, 1000, 150), (1, 128))
        self.assertIsNone(step_bench.affordable(256, 512, 50, 150))
        self.assertEqual(step_bench.affordable(256, 512, None, 150), (3, 512))

    def test_measures_the_same_with_little_time_or_nothing(self):
        plan = step_bench.PLANS["full"]
        with unittest.mock.patch.object(step_bench, "bench", return_value={"cases": []}) as bench:
            step_bench.batched(None, plan, "m", 256, 512, 6000, 120)
            self.assertIn(512, bench.call_args.args)
            with self.assertRaisesRegex(limits.TooSlow, "the 30 s that are left"):
                step_bench.batched(None, plan, "m", 256, 512, 6000, 30)

    def test_types_and_lengths(self):
        names = ("gpt2-124m", "smollm2-135m", "llama-3.2-1b", "llama-3.1-8b")
        self.assertEqual({name: step_bench.types_of(model_shapes.SHAPES[name])[1] for name in names},
                         {"gpt2-124m": "Q4_K", "smollm2-135m": "Q4_0", "llama-3.2-1b": "Q4_K", "llama-3.1-8b": "Q4_K"})
        self.assertEqual(step_bench.prefill_of(model_shapes.SHAPES["gpt2-124m"], step_bench.PLANS["full"]), 1000)


class Counted:
    """transformers on a clock of its own: a second for a prompt, a tenth of it for each further token."""

    def __init__(self, fails=False):
        self.now, self.calls, self.fails, self.cache = 0.0, [], fails, None

    def fix_cache(self, length):
        self.cache = length

    def generate(self, batch, depth, new):
        if self.fails:
            raise MemoryError("out of memory\nat some place")
        self.calls.append((batch, depth, new, self.cache))
        self.now += 1 + (new - 1) / 10
        return [1 + i / 10 for i in range(new)]

    def clock(self):
        return self.now


class Transformers(unittest.TestCase):
    def measure(self, engine, setting, seconds=100, **case):
        job = {"repeat": 3, "seconds": seconds, "cases": {"c": case}}
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            transformers_worker.measure(engine, job, "c", setting, engine.clock)
        return json.loads(told.getvalue())

    def test_counts_prompts_and_replies(self):
        prompt = self.measure(Counted(), "growing cache", kind="prefill", tokens=1, batch=1, depth=500)
        self.assertEqual((prompt["tokens_per_s"], prompt["runs"]), (500, 3))
        engine = Counted()
        reply = self.measure(engine, "fixed cache", kind="decode", tokens=8, batch=4, depth=16)
        self.assertAlmostEqual(reply["tokens_per_s"], 40)
        self.assertEqual(engine.calls, [(4, 16, 9, 25)] * 4)

    def test_repeats_while_there_is_time(self):
        self.assertEqual(self.measure(Counted(), "growing cache", 3, kind="prefill", tokens=1, batch=1, depth=500)["runs"], 2)

    def test_tells_why_a_case_is_missing(self):
        told = self.measure(Counted(fails=True), "growing cache", kind="decode", tokens=8, batch=4, depth=16)
        self.assertEqual(told["reason"], "MemoryError: out of memory")

    def test_rows_begin_differently(self):
        rows = [transformers_worker.ids_of(row, 8, 50257) for row in range(256)]
        self.assertEqual(len({row[0] for row in rows}), 256)


if __name__ == "__main__":
    unittest.main()
