#!/usr/bin/env python3
"""The figures of bench_tokenize for PyPI's tiktoken with GPT-2's vocabulary: tokenize_tiktoken.py FOLDER TEXT [RUNS]

FOLDER has encoder.json and vocab.bpe. Prints the first ids too, so that both can be seen to do the same work.
"""
import json
import pathlib
import statistics
import sys
import time

import tiktoken

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


def byte_alphabet():
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printed]
    return {chr(b): b for b in printed} | {chr(0x100 + i): b for i, b in enumerate(rest)}


def load(folder):
    alphabet = byte_alphabet()
    pieces = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    special = {"<|endoftext|>": pieces.pop("<|endoftext|>")}
    ranks = {bytes(alphabet[c] for c in piece): rank for piece, rank in pieces.items()}
    return tiktoken.Encoding("gpt2-local", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)


def median_seconds(runs, work):
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times), min(times)


def main():
    folder, path = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 21
    start = time.perf_counter()
    encoding = load(folder)
    took = time.perf_counter() - start
    text = path.read_text(encoding="utf-8")
    size = len(text.encode())
    ids = encoding.encode_ordinary(text)
    print(f"tiktoken {tiktoken.__version__}, {folder}: {encoding.n_vocab} tokens, loaded in {took * 1e3:.1f} ms")
    print(f"{path}: {size} bytes, {len(ids)} tokens; one core, {runs} runs; first ids {ids[:8]}")
    print(f"{'':8} {'MB/s':>10} {'best MB/s':>10} {'M tokens/s':>14}")
    for name, work in (("encode", lambda: encoding.encode_ordinary(text)), ("decode", lambda: encoding.decode_bytes(ids))):
        median, best = median_seconds(runs, work)
        print(f"{name:8} {size / median / 1e6:10.1f} {size / best / 1e6:10.1f} {len(ids) / median / 1e6:14.2f}")


main()
