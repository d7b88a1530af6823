#!/usr/bin/env python3
"""Measures HF transformers on a shape with random weights that are made on the device: bf16, greedy, ids given. Run as

  transformers_worker.py JOB     {"shape": fields of model_shapes.Shape, "on_cpu": whether a CPU will do, "repeat": N,
                                  "seconds": after which a case isn't repeated,
                                  "cases": {name: {"kind", "tokens", "batch", "depth"}}}

Writes JSON lines: {"device", "versions", "load_s"}, or {"skip": why nothing is measured}; then for each case, as soon as it is
measured, {"case", "setting", "tokens_per_s", "runs"} or {"case", "setting", "reason"}. First all cases with the cache
that grows, then the replies with one of fixed size, for which `generate` compiles the step.
"""
import json
import os
import pathlib
import statistics
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
sys.dont_write_bytecode = True
TOOLS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))

from model_shapes import Shape


def say(**line):
    print(json.dumps(line), flush=True)


def config_of(shape):
    import transformers

    if shape.architecture == "gpt2":
        return transformers.GPT2Config(vocab_size=shape.vocabulary, n_positions=shape.context, n_embd=shape.hidden,
                                       n_layer=shape.layers, n_head=shape.heads, n_inner=shape.ffn)
    return transformers.LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.ffn, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, max_position_embeddings=shape.context,
        rms_norm_eps=shape.epsilon, tie_word_embeddings=shape.tied)


def ids_of(row, count, vocabulary):
    """Rows differ from their first token on."""
    return [(100 + i * 37 + row * 101) % vocabulary for i in range(count)]


class Engine:
    """Computes greedy tokens after prompts, and tells when each was there."""

    def __init__(self, shape, device):
        import torch
        import transformers

        self.torch, self.transformers, self.device, self.vocabulary = torch, transformers, device, shape.vocabulary
        with torch.device(device):
            self.model = transformers.AutoModelForCausalLM.from_config(config_of(shape), dtype=torch.bfloat16)
        self.model.eval()
        self.model.generation_config.eos_token_id = None
        self.cache = None

    def fix_cache(self, length):
        self.cache = self.transformers.StaticCache(config=self.model.config, max_cache_len=length) if length else None

    def finish(self):
        if self.device.startswith("cuda"):
            self.torch.cuda.synchronize()

    def generate(self, batch, depth, new):
        """Seconds from the start until the logits of each of the new tokens were computed."""
        ids = self.torch.tensor([ids_of(row, depth, self.vocabulary) for row in range(batch)], device=self.device)
        times, more = [], {}
        if self.cache is not None:
            self.cache.reset()
            more["past_key_values"] = self.cache

        def look(_, scores):  # `generate` waits for each token anyway, to see whether it ends the text
            self.finish()
            times.append(time.perf_counter() - start)
            return scores

        self.finish()
        start = time.perf_counter()
        with self.torch.no_grad():
            self.model.generate(ids, attention_mask=self.torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new,
                                do_sample=False, pad_token_id=0, logits_processor=[look], **more)
        if len(times) != new:
            raise RuntimeError(f"{len(times)} tokens instead of {new}")
        return times


def speed_of(case, times):
    """Tokens/s: of a prompt until its first token is there; of replies, what each further token of them takes."""
    if case["kind"] == "prefill":
        return case["depth"] / times[0]
    return case["batch"] * (len(times) - 1) / (times[-1] - times[0])


def measure(engine, job, name, setting, clock=time.perf_counter):
    """Once uncounted, when memory is got and code compiled; then as often as the job says, while there is time."""
    case = job["cases"][name]
    new = 1 if case["kind"] == "prefill" else 1 + case["tokens"]
    try:
        engine.fix_cache(case["depth"] + new if setting == "fixed cache" else 0)
        begin, speeds = clock(), []
        engine.generate(case["batch"], case["depth"], new)
        while not speeds or len(speeds) < job["repeat"] and clock() - begin < job["seconds"]:
            speeds.append(speed_of(case, engine.generate(case["batch"], case["depth"], new)))
        say(case=name, setting=setting, tokens_per_s=statistics.median(speeds), runs=len(speeds))
    except Exception as error:  # whatever it is, the other cases may work
        say(case=name, setting=setting, reason=f"{type(error).__name__}: {error}".splitlines()[0][:300])


def device_of(job):
    """Where to measure; says why nothing can be, and ends, where that is so."""
    try:
        import torch
        import transformers
    except ImportError as error:
        say(skip=str(error))
        sys.exit(0)
    transformers.logging.set_verbosity_error()
    if not torch.cuda.is_available() and not job["on_cpu"]:
        say(skip="torch has no GPU")
        sys.exit(0)
    return "cuda" if torch.cuda.is_available() else "cpu"


def main():
    job = json.loads(sys.argv[1])
    device, start = device_of(job), time.monotonic()
    engine = Engine(Shape(**job["shape"]), device)
    engine.finish()
    say(device=device, versions={"torch": engine.torch.__version__, "transformers": engine.transformers.__version__},
        load_s=round(time.monotonic() - start, 2))
    for name in job["cases"]:
        measure(engine, job, name, "growing cache")
    for name, case in job["cases"].items():
        if case["kind"] == "decode":
            measure(engine, job, name, "fixed cache")
    os._exit(0)  # without taking down what was compiled


if __name__ == "__main__":
    main()
