#!/usr/bin/env python3
"""Measures one engine that is a Python package. Run by the Python that has it:

  engine_worker.py ENGINE prepare MODEL.gguf FOLDER   dequantizes the weights for it, where that was not done before
  engine_worker.py ENGINE measure JOB                 JOB as engines.py writes it

The last line on stdout is a JSON object.
"""
import itertools
import json
import os
import pathlib
import shutil
import statistics
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"


def ids_of(row, count, salt):
    """Tokens that real vocabularies have. Rows differ from the first token on, and so do calls of another salt: an engine
    that keeps what it has computed of a prompt finds nothing."""
    return [100 + (i * 37 + row * 101 + salt * 1009) % 20000 for i in range(count)]


# --- the engines: generate(prompts, new) computes exactly `new` greedy tokens after each of the prompts ----------------------


class Transformers:
    setting = "f32"

    def __init__(self, job):
        import torch
        import transformers

        torch.set_num_threads(job["threads"])
        self.torch = torch
        self.model = transformers.AutoModelForCausalLM.from_pretrained(job["weights"] + "/hf", dtype=torch.float32)
        self.model.eval()

    def generate(self, prompts, new):
        ids = self.torch.tensor(prompts)
        with self.torch.inference_mode():
            self.model.generate(ids, attention_mask=self.torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new,
                                do_sample=False, pad_token_id=0)

    @staticmethod
    def prepare(model, folder):
        """transformers reads the file itself, and dequantizes; saved, that needn't be done again."""
        import torch
        import transformers

        read = {"pretrained_model_name_or_path": str(model.parent), "gguf_file": model.name}
        loaded = transformers.AutoModelForCausalLM.from_pretrained(**read, dtype=torch.float32)
        loaded.hf_quantizer = None  # or it refuses to save
        if hasattr(loaded.config, "quantization_config"):
            del loaded.config.quantization_config
        loaded.save_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(**read).save_pretrained(folder)

    prepared = "hf"


class CTranslate2:
    setting = "int8"

    def __init__(self, job):
        import ctranslate2

        folder = pathlib.Path(job["weights"]) / "ct2"
        self.words = json.loads((folder / "vocabulary.json").read_text())
        self.engine = ctranslate2.Generator(str(folder), device="cpu", compute_type="int8", inter_threads=1,
                                            intra_threads=job["threads"])

    def generate(self, prompts, new):
        self.engine.generate_batch([[self.words[i] for i in ids] for ids in prompts], max_length=new, min_length=new,
                                   sampling_topk=1, end_token=[], include_prompt_in_result=False)

    @staticmethod
    def prepare(model, folder):
        import ctranslate2

        ensure(Transformers, model, folder.parent)
        converter = ctranslate2.converters.TransformersConverter(str(folder.parent / "hf"))
        converter.convert(str(folder), quantization="int8", force=True)

    prepared = "ct2"


class OpenVino:
    setting = "the GGUF"

    def __init__(self, job):
        import numpy
        import openvino
        import openvino_genai

        self.numpy, self.openvino, self.genai = numpy, openvino, openvino_genai
        self.pipe = openvino_genai.LLMPipeline(job["model"], "CPU", INFERENCE_NUM_THREADS=job["threads"])

    def generate(self, prompts, new):
        config = self.genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = new
        config.ignore_eos, config.do_sample, config.apply_chat_template = True, False, False
        ids = self.numpy.array(prompts, dtype=self.numpy.int64)
        tensors = [self.openvino.Tensor(each) for each in (ids, self.numpy.ones_like(ids))]
        done = self.pipe.generate(self.genai.TokenizedInputs(*tensors), config)
        if any(len(row) != new for row in done.tokens):
            raise RuntimeError("it wrote another number of tokens than it was asked for")

    prepared = None  # it reads the file as it is


ENGINES = {"transformers": Transformers, "ctranslate2": CTranslate2, "openvino": OpenVino}


# --- measuring -------------------------------------------------------------------------------------------------------------


class TooSlow(Exception):
    pass


CALLS = itertools.count()


def time_of(engine, case, new, clock):
    salt = next(CALLS)
    prompts = [ids_of(row, max(1, case["depth"]), salt) for row in range(case["batch"])]
    start = clock()
    engine.generate(prompts, new)
    return clock() - start


def measure_case(engine, case, repeat, seconds, clock=time.perf_counter):
    """Tokens/s: of a prompt until its first token is there; of replies, what each further token of them takes."""
    new, reply = case["tokens"], case["kind"] == "decode"
    few = min(new, 4)
    first = time_of(engine, case, 1, clock)  # uncounted: memory is got, code compiled
    first = min(first, time_of(engine, case, 1, clock))
    if reply:
        each = max(0.0, time_of(engine, case, 1 + few, clock) - first) / few
        expected = repeat * (2 * first + each * new)
    else:
        expected = repeat * first
    if expected > seconds:
        raise TooSlow(f"would take {expected:.0f} s a round")
    speeds = []
    for _ in range(repeat):
        start = time_of(engine, case, 1, clock)
        if reply:
            whole = time_of(engine, case, 1 + new, clock)
            speeds.append(case["batch"] * new / max(1e-9, whole - start))
        else:
            speeds.append(case["depth"] / start)
    return statistics.median(speeds)


def measure(engine_class, job):
    engine = engine_class(job)
    speeds, reasons = {}, {}
    for column, case in job["cases"].items():
        try:
            speeds[column] = measure_case(engine, case, job["repeat"], job["seconds"])
        except TooSlow as slow:
            reasons[column] = str(slow)
        except Exception as error:  # whatever an engine throws, the other columns may work
            reasons[column] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return {"setting": engine_class.setting, "speeds": speeds, "reasons": reasons}


def ensure(engine_class, model, folder):
    """Prepares once: the result appears under its name when it is complete."""
    if engine_class.prepared is None or (folder / engine_class.prepared).exists():
        return
    fresh = folder / (engine_class.prepared + ".part")
    shutil.rmtree(fresh, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    engine_class.prepare(model, fresh)
    fresh.rename(folder / engine_class.prepared)


def main():
    engine_class = ENGINES[sys.argv[1]]
    if sys.argv[2] == "prepare":
        ensure(engine_class, pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]))
        answer = {}
    else:
        answer = measure(engine_class, json.loads(sys.argv[3]))
    print("\n" + json.dumps(answer), flush=True)
    os._exit(0)  # some engines crash while they take their threads down


if __name__ == "__main__":
    main()
