"""The step `tokens`: greedy text of the device beside that of cpu:f32, and the same text read by both as a prompt.

Where both choose other tokens, the margin counts: by how much the reference prefers its own token, in logits. It is a fault where
the margin is more than the tolerance, which is a part of the deviation of the reference's logits from their mean: rounding moves
logits by about the same part of it whatever the model is. Greedy texts are compared to their first difference, since after it
both answer another question; as a prompt, every position of the reference's text is compared.
"""
import dataclasses
import json
import pathlib
import statistics
import tempfile

import random_gguf
from limits import SCRATCH, Budget, Failed, need
from model_shapes import Shape
from step_build import environment

REFERENCE = "cpu:f32"
PART_SECONDS = 120
# Of the logits' deviation, by the end of the device's name. Emulated, logits are off by at most 0.00001 and 0.07 of it, and
# two of them may be, in opposite directions.
TOLERANCE = {"": 0.01, "-bf16": 0.15}
PROMPT, TOP = 24, 20
DEVIATION = 0.06  # of weights: as large as keeps texts from repeating one token
TYPES = ("F32", "BF16", "Q4_0", "Q8_0", "Q4_K")
SHAPES = {
    "gqa-64": Shape("llama", 256, 3, 4, 2, 768, 1000, 2048, 1e-5, 1e4, tied=False),
    "gqa-128": Shape("llama", 512, 2, 4, 1, 1024, 1000, 2048, 1e-5, 5e5, 8, tied=False),
    "mha-64-bias": Shape("gpt2", 256, 3, 4, 4, 768, 1000, 1024, 1e-5, tied=False),
}


def prompt_ids(vocabulary):
    return [(17 + 37 * i + 11 * i * i) % min(vocabulary, 20000) for i in range(PROMPT)]


@dataclasses.dataclass
class Text:
    ids: list  # that were generated
    tops: list  # for each, {token: log-probability} of the best ones, the best first


def generate(options, model, device, prompt, count, budget, more=()):
    command = [options.program, "run", model, "--json", "--prompt-ids", ",".join(map(str, prompt)), "-n", count,
               "--temperature", 0, "--ignore-eos", "--top-logprobs", TOP, "--device", device, "--no-tune", "--no-progress",
               *options.plugins(), *more]
    answer = json.loads(need(command, budget.left(), env=environment()).out)
    return Text(answer["ids"], [{each["id"]: each["logprob"] for each in step["top"]} for step in answer["steps"]])


def score(options, model, device, lines, budget, more=()):
    command = [options.program, "score", model, "--json", "--device", device, "--no-tune", "--no-progress",
               *options.plugins(), *more]
    done = need(command, budget.left(), env=environment(), input="".join(json.dumps(line) + "\n" for line in lines))
    return [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]


def margin_of(top, token):
    """By how much the best one is preferred to the token: (margin, whether it is more than that)."""
    best, least = next(iter(top.values())), min(top.values())
    return (best - top[token], False) if token in top else (best - least, True)


def differences(expected, tops, got):
    """[{position, expected, got, margin, more}] of the places where both lists of tokens differ."""
    found = []
    for position, (right, top, token) in enumerate(zip(expected, tops, got)):
        if right != token:
            margin, more = margin_of(top, token)
            found.append({"position": position, "expected": right, "got": token, "margin": round(margin, 5), "more": more})
    return found


@dataclasses.dataclass
class Reference:
    prompt: list
    text: Text
    deviation: float  # of its logits
    tops: list  # as a prompt: {token: logit} for each token of the text

    def forced(self):
        """The line for `score` that reads the text as a prompt."""
        ids = self.prompt + self.text.ids[:-1]
        return {"ids": ids, "positions": list(range(len(self.prompt) - 1, len(ids))), "top": TOP}


def tops_of(answer):
    return [{each["id"]: each["logit"] for each in top} for top in answer["top"]]


def reference_of(options, model, budget):
    logits = score(options, model, REFERENCE, [{"ids": [0], "positions": "last"}], budget)[0]["logits"][0]
    prompt = prompt_ids(len(logits))
    reference = Reference(prompt, generate(options, model, REFERENCE, prompt, options.tokens, budget), 0.0, [])
    logits, forced = score(options, model, REFERENCE, [{"ids": prompt, "positions": "last"}, reference.forced()], budget)
    reference.deviation, reference.tops = statistics.pstdev(logits["logits"][0]), tops_of(forced)
    return reference


def compare(options, model, device, reference, budget):
    deny = ["--fallback", "deny"]
    got = generate(options, model, device, reference.prompt, len(reference.text.ids), budget, deny)
    answers = tops_of(score(options, model, device, [reference.forced()], budget, deny)[0])
    tolerance = next(part for end, part in reversed(TOLERANCE.items()) if device.endswith(end)) * reference.deviation
    first = differences(reference.text.ids, reference.text.tops, got.ids)[:1]
    as_prompt = differences([next(iter(top)) for top in reference.tops], reference.tops, [next(iter(top)) for top in answers])
    errors = [abs(right[token] - top[token]) for right, top in zip(reference.tops, answers) for token in right if token in top]
    faults = [each for each in first + as_prompt if each["margin"] > tolerance]
    found = {"tokens": len(got.ids), "same": first[0]["position"] if first else len(got.ids), "first_difference": first,
             "as_prompt": {"tokens": len(answers), "same": len(answers) - len(as_prompt), "differences": as_prompt},
             "logits_deviation": round(reference.deviation, 5), "tolerance": round(tolerance, 5),
             "largest_error": round(max(errors, default=0.0), 6), "faults": faults}
    if len(got.ids) != len(reference.text.ids) or len(answers) != len(reference.tops):
        faults.append({"reason": f"{len(got.ids)} tokens instead of {len(reference.text.ids)}"})
    if faults:
        error = Failed(f"{len(faults)} differing tokens are no near-ties: {json.dumps(faults[0])}")
        error.found = found
        raise error
    return found


def compare_all(options, results, name, make):
    """On all devices; `make()` gives the file, and is asked for it only where something is to be done."""
    known = {}

    def part(device, seconds):
        budget = Budget(seconds)
        if "model" not in known:
            known["model"] = make()
        if "reference" not in known:
            known["reference"] = reference_of(options, known["model"], budget)
        return compare(options, known["model"], device, known["reference"], budget)

    for device in options.devices():
        results.part("tokens", f"{name} {device}", PART_SECONDS, lambda seconds, device=device: part(device, seconds))


def step(options, results):
    for name in options.token_shapes:
        for kind in options.token_types:
            with tempfile.TemporaryDirectory(dir=options.scratch, prefix=SCRATCH) as folder:

                def make(name=name, kind=kind, folder=folder):
                    path = pathlib.Path(folder) / f"{name}-{kind}.gguf"
                    random_gguf.write(path, name, SHAPES[name], kind, deviation=DEVIATION)
                    return path

                compare_all(options, results, f"{name} {kind}", make)
    if options.model:
        compare_all(options, results, options.model.name, lambda: options.model)
