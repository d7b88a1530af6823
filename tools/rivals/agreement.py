"""Whether backplane and llama.cpp compute the same."""
import array
import json
import math
import pathlib
import statistics
import struct
import tempfile

from programs import json_lines, run


def read_base(path):
    """The file of llama-perplexity --kl-divergence-base: tokens of each window, and a function that gives row i of all."""
    data = pathlib.Path(path).read_bytes()
    if data[:8] != b"_logits_":
        raise ValueError("not a file of log-probabilities")
    context, vocabulary, windows = struct.unpack_from("<iii", data, 8)
    tokens = array.array("i", data[20 : 20 + 4 * context * windows])
    start, words = 20 + 4 * context * windows, 2 * ((vocabulary + 1) // 2) + 4

    def row(number):
        at = start + 2 * words * number
        scale, least = struct.unpack_from("<ff", data, at)
        return [least + scale * q for q in array.array("H", data[at + 8 : at + 8 + 2 * vocabulary])]

    return context, [tokens[i * context : (i + 1) * context].tolist() for i in range(windows)], row


def begin_token(options):
    out = run([options.backplane, "tokenize", options.model, "--json"], input=b'{"text": "", "add_special": true}\n')
    return json.loads(out.stdout)["ids"][:1]


def divergence(theirs, logits):
    """KL of ours from theirs; theirs are log-probabilities cut off at e^-16 of the best one."""
    top = max(logits)
    normal = top + math.log(sum(math.exp(value - top) for value in logits))
    return sum(math.exp(p) * (p - value + normal) for p, value in zip(theirs, logits))


def compare(options):
    """One line that says how far both agree, or why that is not known."""
    if not (options.llama / "llama-perplexity").exists():
        return "not compared: there is no llama-perplexity"
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder) / "base"
        run([options.llama / "llama-perplexity", "-m", options.model, "-f", options.text, "-c", options.window, "-b",
             options.window, "--chunks", options.windows, "-t", options.threads, "--kl-divergence-base", base])
        context, windows, row = read_base(base)
    begin, first = begin_token(options), context // 2
    positions = list(range(first, context - 1))
    # As llama-perplexity does: a model that begins texts with a token has it in the place of the first one.
    lines = [{"ids": (begin + ids[1:]) if begin else ids, "positions": positions} for ids in windows]
    out = run([options.backplane, "score", options.model, "--json", *options.device_options()],
              input="\n".join(map(json.dumps, lines)).encode())
    same, total = 0, []
    for number, line in enumerate(json_lines(out.stdout)):
        for index, logits in enumerate(line["logits"]):
            theirs = row(number * len(positions) + index)
            same += theirs.index(max(theirs)) == logits.index(max(logits))
            total.append(max(0.0, divergence(theirs, logits)))
    return (f"top-1 agreement {same} of {len(total)} positions, mean KL {statistics.mean(total):.2g}, "
            f"largest {max(total):.2g}")
