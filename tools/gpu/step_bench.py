"""The step `bench`: roofs of the card, `backplane bench` on models with random weights, and HF transformers on the same shapes.

The time that attention takes in decoding is not told by the program, whose ops run behind its back; it follows from two depths of
the same batch: what the longer one takes more, for the keys and values that it reads more.
"""
import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
import time

import random_gguf
from limits import SCRATCH, Failed, TooSlow, need, run
from model_shapes import SHAPES, Shape
from results import LARGE_SHARE, Skip
from step_build import architectures, cublas, environment, nvcc

ROOF_SECONDS, PART_SECONDS, PEER_SECONDS, PEER_CASE_SECONDS = 120, 150, 150, 45
NO_GPU = 2  # exit status of the probe
REPEAT, DECODE, BATCH_TOKENS = 3, 64, 32
SAID = 20  # lines of what the program says beside its report: why steps aren't recorded, or whose products it takes
GPU = pathlib.Path(__file__).resolve().parent
# By the name of a bench shape: the types of its files. Rows of 576 are no whole blocks of Q4_K.
TYPES = ("BF16", "Q4_K", "Q4_0")
TINY = {"tiny": Shape("llama", 256, 2, 4, 2, 768, 1000, 2048, 1e-5, 1e4)}  # to try this step where speed doesn't matter
ALL_SHAPES = SHAPES | TINY


@dataclasses.dataclass
class Plan:
    """What is measured; all lengths are cut to the context of a shape."""

    prefill: int = 4096
    step_tokens: int = 4096  # the prompt in one step, as the others read it
    depth: int = 512
    batches: tuple = (32, 256)
    decode: int = DECODE
    batch_tokens: int = BATCH_TOKENS
    attention_shape: str = "llama-3.2-1b"
    attention_batch: int = 8
    attention_depths: tuple = (512, 8192)


PLANS = {"full": Plan(), "tiny": Plan(64, 64, 16, (2, 4), 4, 2, "tiny", 2, (16, 64))}


def types_of(shape):
    """BF16, and Q4_K where rows have whole blocks of it, or Q4_0."""
    return ["BF16"] + [kind for kind in TYPES[1:] if random_gguf.fits(shape, kind)][:1]


def prefill_of(shape, plan):
    return min(plan.prefill, shape.context - 24)


# --- roofs -------------------------------------------------------------------------------------------------------------------


def roofs(options, seconds):
    if not nvcc():
        raise Skip("there is no nvcc to compile the probe with")
    card = options.architectures or architectures()
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix=SCRATCH) as folder:
        program = pathlib.Path(folder) / "roofs"
        target = f"sm_{card}" if card[:1].isdigit() and ";" not in card else "native"
        built = need([nvcc(), "-O3", "-std=c++20", f"-arch={target}", "-o", program, GPU / "roofs.cu", "-ldl"], seconds)
        library = cublas()
        done = run([program, *([library] if library else [])], seconds - built.seconds)
    if done.status == NO_GPU:
        raise Skip(done.told())
    if done.status != 0:
        raise (TooSlow if done.timed_out else Failed)(f"the probe ended with status {done.status}: {done.told()}")
    return {**json.loads(done.out), "cublas": str(library)}


# --- backplane ---------------------------------------------------------------------------------------------------------------


def bench(options, plan, model, repeat, seconds, *cases):
    command = [options.program, "bench", model, "--json", "--no-roofs", "--no-tune", "--no-progress", "--fallback", "deny",
               "--device", f"{options.device}:0-bf16", *options.plugins(), "--repeat", repeat,
               "--step-tokens", plan.step_tokens, *cases]
    done = need(command, seconds, env=environment())
    report = json.loads(done.out)
    if report["fallbacks"]:
        raise Failed(f"fallbacks: {json.dumps(report['fallbacks'])}")
    kernels = sorted({f"{use['op']} {use['shape']}: {use['kernel']}" for use in report["kernels"]})
    return {"cases": report["results"], "left_out": report["skipped"], "kv_type": report["kv_type"], "kernels": kernels,
            "weight_type": report["weight_type"], "load_s": report["load_s"], "repeat": repeat,
            "step_tokens": report["step_tokens"], "said": done.err.splitlines()[-SAID:]}


def single(options, plan, shape, model, seconds):
    return bench(options, plan, model, REPEAT, seconds, "--prefill", prefill_of(shape, plan), "--decode", plan.decode, "--depth",
                 plan.depth, "--batch", "none")


def affordable(batch, depth, prefill_rate, seconds):
    """(repetitions, depth): fewer of both where prompts alone would take longer than most of the time that is there. Each
    repetition computes its prompts anew, and one more run isn't counted."""
    for depth_now in (depth, depth // 4, depth // 16):
        for repeat in (REPEAT, 1):
            if not prefill_rate or (repeat + 1) * batch * depth_now / prefill_rate < 0.6 * seconds:
                return repeat, max(1, depth_now)
    return None


def check_left(repeat, batch, depth, prefill_rate, seconds):
    """What is measured must not depend on how much time of all is left."""
    if prefill_rate and (repeat + 1) * batch * depth / prefill_rate > 0.9 * seconds:
        raise TooSlow(f"prompts of {batch} sequences would take longer than the {seconds:.0f} s that are left")


def batched(options, plan, model, batch, depth, prefill_rate, seconds):
    can = affordable(batch, depth, prefill_rate, PART_SECONDS)
    if not can:
        raise Skip(f"prompts of {batch} sequences would take too long at {prefill_rate:.0f} tokens/s")
    repeat, depth = can
    check_left(repeat, batch, depth, prefill_rate, seconds)
    return bench(options, plan, model, repeat, seconds, "--prefill", "none", "--depth", "none", "--batch", batch, "--batch-tokens",
                 plan.batch_tokens, "--batch-depth", depth)


def rate_of(part):
    """Tokens/s of the prompt in a part's result; None where it isn't known."""
    rates = [case["tokens_per_s"] for case in (part or {}).get("cases", []) if case["kind"] == "prefill"]
    return rates[0] if rates else None


def bench_file(options, results, plan, name, kind):
    """All cases of one file, which is written when the first of them is to be done."""
    shape = ALL_SHAPES[name]
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix=SCRATCH) as folder:
        path = pathlib.Path(folder) / f"{name}-{kind}.gguf"

        def file():
            if not path.exists():
                start, need_bytes = time.monotonic(), random_gguf.size_of(kind, shape_elements(shape))
                if shutil.disk_usage(folder).free < 1.1 * need_bytes:
                    raise Failed(f"{folder} has too little room for {need_bytes / 1e9:.1f} GB")
                written = random_gguf.write(path, name, shape, kind)
                file.facts = {"file_bytes": written, "file_s": round(time.monotonic() - start, 2)}
            return path

        file.facts = {}

        def part(what, work):
            def with_file(seconds):
                start = time.monotonic()
                model = file()
                return {**work(model, seconds - (time.monotonic() - start)), **file.facts}

            return results.part("bench", f"{name} {kind} {what}", PART_SECONDS, with_file)

        first = part("batch 1", lambda model, seconds: single(options, plan, shape, model, seconds))
        for batch in plan.batches:
            depth = min(plan.depth, shape.context - plan.batch_tokens - 1)
            part(f"batch {batch}", lambda model, seconds, batch=batch, depth=depth: batched(
                options, plan, model, batch, depth, rate_of(first), seconds))
        if name == plan.attention_shape and kind == "BF16":
            for depth in plan.attention_depths:
                part(f"attention, depth {depth}", lambda model, seconds, depth=depth: attention(
                    options, plan, model, depth, rate_of(first), seconds))


def attention(options, plan, model, depth, prefill_rate, seconds):
    """The whole depth or nothing, since two are compared."""
    found = affordable(plan.attention_batch, depth, prefill_rate, PART_SECONDS)
    if not found or found[1] != depth:
        raise Skip(f"prompts of {depth} tokens would take too long")
    check_left(found[0], plan.attention_batch, depth, prefill_rate, seconds)
    return bench(options, plan, model, found[0], seconds, "--prefill", "none", "--depth", "none", "--batch", plan.attention_batch,
                 "--batch-tokens", plan.batch_tokens, "--batch-depth", depth)


def shape_elements(shape):
    rounded = sum(rows * columns for _, rows, columns in random_gguf.matrices(shape))
    return -(-rounded // 256) * 256


# --- transformers ------------------------------------------------------------------------------------------------------------


def peer_cases(shape, plan):
    cases = {f"prefill {prefill_of(shape, plan)}": {"kind": "prefill", "tokens": 1, "batch": 1, "depth": prefill_of(shape, plan)}}
    depth = min(plan.depth, shape.context - plan.decode - 1)
    cases["batch 1"] = {"kind": "decode", "tokens": plan.decode, "batch": 1, "depth": depth}
    for batch in plan.batches:
        cases[f"batch {batch}"] = {"kind": "decode", "tokens": plan.batch_tokens, "batch": batch, "depth": depth}
    return cases


def peer(options, plan, shape, seconds):
    job = {"shape": dataclasses.asdict(shape), "on_cpu": options.peer_on_cpu, "repeat": 3, "seconds": PEER_CASE_SECONDS,
           "cases": peer_cases(shape, plan)}
    found = {"cases": {name: {**case, "settings": {}} for name, case in job["cases"].items()}}

    def line(text):
        try:
            told = json.loads(text)
        except ValueError:
            return  # what a library says
        if "case" in told:
            found["cases"][told.pop("case")]["settings"][told.pop("setting")] = told
        else:
            found.update(told)

    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    done = run([options.python, GPU / "transformers_worker.py", json.dumps(job)], seconds, on_line=line,
               env=environment)
    if "skip" in found:
        raise Skip(f"no transformers: {found['skip']}")
    if done.timed_out or done.status != 0:
        error = TooSlow("ended at its limit") if done.timed_out else Failed(f"ended with status {done.status}: {done.told()}")
        error.found = found
        raise error
    return found


def step(options, results):
    plan = PLANS["tiny" if options.shapes == ["tiny"] else "full"]
    results.part("bench", "roofs", ROOF_SECONDS, lambda seconds: roofs(options, seconds))
    for name in options.shapes:
        for kind in types_of(ALL_SHAPES[name]):
            bench_file(options, results, plan, name, kind)
    for name in options.shapes:
        results.part("bench", f"{name} transformers", PEER_SECONDS,
                     lambda seconds, name=name: peer(options, plan, ALL_SHAPES[name], seconds), share=LARGE_SHARE)
