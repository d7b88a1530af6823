#!/usr/bin/env python3
"""Writes vectors.json: what the logits processors of HF transformers make of a row of logits.

    pip install torch transformers     # the file in the repository: torch 2.15.0, transformers 5.24.0
    tests/unit/sample/make_vectors.py

The processors and their order are those that model.generate() would use. The logits come from a formula, so that the
test can have the same ones: see logits_of.
"""

import json
import pathlib
import random

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

LISTED = 8  # how many of the most and of the least probable tokens a vector lists


def logits_of(seed, size, scale):
    """Sums of four numbers of a linear congruential generator, which is about a normal distribution."""
    state, out = seed, []
    for _ in range(size):
        total = 0
        for _ in range(4):
            state = (state * 1103515245 + 12345) % 2**31
            total += state
        out.append((total / 2**31 - 2) * scale)
    return out


def processors(model, params, prompt):
    names = {"temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty"}
    config = GenerationConfig(
        do_sample=True,
        num_beams=1,
        num_return_sequences=1,
        pad_token_id=0,
        eos_token_id=params.get("end_ids"),
        min_new_tokens=params.get("min_tokens"),
        sequence_bias=[[[int(i)], bias] for i, bias in params.get("logit_bias", {}).items()] or None,
        bad_words_ids=params.get("bad_words"),
        **({"top_k": 0} | {name: params[name] for name in names & params.keys()}),
    )
    model._prepare_special_tokens(config)
    allowed = params.get("allowed_ids")
    return model._get_logits_processor(
        generation_config=config,
        input_ids_seq_length=len(prompt),
        prefix_allowed_tokens_fn=(lambda _batch, _ids: allowed) if allowed else None,
    )


def vector(model, logits, params, prompt, output):
    row = torch.tensor([logits_of(**logits)], dtype=torch.float64)
    ids = torch.tensor([prompt + output])
    steps = processors(model, params, prompt)
    for step in steps:
        row = step(ids, row)
    kept = torch.isfinite(row[0]).nonzero().flatten().tolist()
    probabilities = torch.softmax(row[0], dim=-1).tolist()
    kept = sorted((i for i in kept if probabilities[i] > 0), key=lambda i: (-probabilities[i], i))
    listed = kept if len(kept) <= 2 * LISTED else kept[:LISTED] + kept[-LISTED:]
    return {
        "logits": logits,
        "params": params,
        "prompt": prompt,
        "output": output,
        "processors": [type(step).__name__ for step in steps],
        "kept": len(kept),
        "listed": [[i, float(f"{probabilities[i]:.12g}")] for i in listed],
    }


def choose(rng, size, prompt, output):
    """Some of the parameters, not all at once."""
    some = {
        "temperature": lambda: rng.choice([0.3, 0.7, 1.0, 1.7, 4.0]),
        "top_k": lambda: rng.choice([1, 2, 5, 20, 40, size - 1, size, size + 7]),
        "top_p": lambda: rng.choice([0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.999]),
        "min_p": lambda: rng.choice([0.001, 0.005, 0.02, 0.1, 0.5]),
        "typical_p": lambda: rng.choice([0.05, 0.2, 0.5, 0.9, 0.99]),
        "repetition_penalty": lambda: rng.choice([0.5, 0.9, 1.1, 1.5, 3.0]),
        "logit_bias": lambda: {rng.randrange(size): rng.choice([-100.0, -2.5, -0.5, 0.5, 3.0, 7.0]) for _ in range(3)},
        "allowed_ids": lambda: sorted(rng.sample(range(size), min(size // 2, 30))),
        # The last token alone, a word that prompt and output end with the beginning of, and one that they don't.
        "bad_words": lambda: [[rng.randrange(size)], (prompt + output)[-2:] + [rng.randrange(size)], [1, 2, 3]],
        "min_tokens": lambda: rng.choice([1, len(output), len(output) + 1, 50]),
    }
    names = rng.sample(sorted(some), rng.choice([1, 1, 2, 3, 5, 7]))
    params = {name: some[name]() for name in sorted(names)}
    if "min_tokens" in params:
        params["end_ids"] = rng.sample(range(size), 2)
    return params


def main():
    torch.manual_seed(0)
    rng = random.Random(5)
    models = {}
    vectors = []
    for size, scale, count in [(9, 3.0, 40), (64, 4.0, 90), (700, 6.0, 50), (5000, 5.0, 20)]:
        models[size] = GPT2LMHeadModel(GPT2Config(vocab_size=size, n_layer=1, n_head=1, n_embd=8, bos_token_id=0, eos_token_id=0))
        for _ in range(count):
            prompt = [rng.randrange(size) for _ in range(rng.randrange(3, 30))]
            output = [rng.randrange(size) for _ in range(rng.randrange(0, 20))]
            logits = {"seed": rng.randrange(2**31), "size": size, "scale": scale}
            params = choose(rng, size, prompt, output)
            vectors.append(vector(models[size], logits, params, prompt, output))
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in vectors)
    path = pathlib.Path(__file__).with_name("vectors.json")
    path.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
