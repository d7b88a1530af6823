"""Fractions of the card's roofs, and whether the targets are met: from the results, without measuring anything."""
import step_bench
import work

LARGE_KV = 200e6  # bytes in the cache from which the target of attention counts
ATTENTION, LARGE_MODEL, SMALL_MODEL, PREFILL = 0.80, 0.85, 5000.0, 0.60


def bench_part(data, name):
    return data["steps"].get("bench", {}).get(name, {})


def fractions(shape, kind, kv_type, case, roofs):
    """The case with its least bytes and operations, per second as parts of the roofs; None where a roof isn't known."""
    moved, flops, tokens = work.of_case(shape, kind, kv_type, case)
    seconds = tokens / case["tokens_per_s"]
    copy, matmul = roofs.get("copy_bytes_per_s"), roofs.get("matmul_flops_per_s")
    return {**case, "step_s": seconds, "bytes": moved, "flops": flops,
            "of_copy": moved / seconds / copy if copy else None, "of_matmul": flops / seconds / matmul if matmul else None}


def peer_speed(data, name, case):
    """(tokens/s, setting) of the best setting of transformers in the same case; None where it wasn't measured so."""
    found = bench_part(data, f"{name} transformers")
    if found.get("device") == "cpu":
        return None
    for theirs in found.get("cases", {}).values():
        length = theirs["depth"] if case["kind"] == "prefill" else theirs["tokens"]
        same = (theirs["kind"], length, theirs["batch"]) == (case["kind"], case["tokens"], case["batch"])
        if not same or (case["kind"] == "decode" and theirs["depth"] != case["depth"]):
            continue
        speeds = [(told["tokens_per_s"], setting) for setting, told in theirs["settings"].items() if "tokens_per_s" in told]
        return max(speeds, default=None)
    return None


def rows(data):
    """[{shape, type, the case's, bytes, flops, of_copy, of_matmul, peer, ratio}] of all that was measured."""
    roofs, out = bench_part(data, "roofs"), []
    for part, found in data["steps"].get("bench", {}).items():
        words = part.split(" ")
        if len(words) < 2 or words[1] not in step_bench.TYPES:
            continue
        for case in found.get("cases", []):
            row = fractions(step_bench.ALL_SHAPES[words[0]], words[1], found["kv_type"], case, roofs)
            peer = peer_speed(data, words[0], case)
            out.append({"shape": words[0], "type": words[1], "kv_type": found["kv_type"], "attention": "attention" in part, **row,
                        "peer": peer, "ratio": row["tokens_per_s"] / peer[0] if peer else None})
    return out


def attention(data, all_rows):
    """What keys and values are read with, from two depths of one batch: {kv_bytes, bytes_per_s, of_copy}, or None."""
    pair = sorted((row for row in all_rows if row["attention"]), key=lambda row: row["depth"])
    if len(pair) < 2 or pair[-1]["step_s"] <= pair[0]["step_s"]:
        return None
    shallow, deep = pair[0], pair[-1]
    each = work.kv_bytes_per_token(step_bench.ALL_SHAPES[deep["shape"]], deep["kv_type"]) * deep["batch"]
    rate = (deep["bytes"] - shallow["bytes"]) / (deep["step_s"] - shallow["step_s"])
    copy = bench_part(data, "roofs").get("copy_bytes_per_s")
    return {"shape": deep["shape"], "batch": deep["batch"], "depths": [shallow["depth"], deep["depth"]],
            "kv_bytes": each * deep["depth"], "bytes_per_s": rate, "of_copy": rate / copy if copy else None}


def verdict(name, wanted, got, case):
    return {"target": name, "wanted": wanted, "got": got, "case": case,
            "verdict": "not measured" if got is None else "met" if got >= wanted else "missed"}


def pick(all_rows, shape, kind, what, batch=1):
    found = [row for row in all_rows if (row["shape"], row["type"], row["kind"], row["batch"]) == (shape, kind, what, batch)
             and not row["attention"]]
    return found[0] if found else {}


def targets(data):
    """[{target, wanted, got, case, verdict}]"""
    all_rows = rows(data)
    seen = attention(data, all_rows)
    large = seen is not None and seen["kv_bytes"] > LARGE_KV
    deep = f"{seen['shape']}, batch {seen['batch']}, {seen['kv_bytes'] / 1e6:.0f} MB of KV" if seen else "no pair of depths"
    prefill = pick(all_rows, "llama-3.1-8b", "BF16", "prefill")
    return [
        verdict("decode attention, of copy bandwidth", ATTENTION, seen["of_copy"] if large else None, deep),
        verdict("8B, batch 1, of copy bandwidth", LARGE_MODEL, pick(all_rows, "llama-3.1-8b", "BF16", "decode").get("of_copy"),
                "llama-3.1-8b BF16"),
        verdict("GPT-2, batch 1, tokens/s", SMALL_MODEL, pick(all_rows, "gpt2-124m", "BF16", "decode").get("tokens_per_s"),
                "gpt2-124m BF16"),
        verdict("8B, prompt, of the bf16 matmul rate", PREFILL, prefill.get("of_matmul"),
                f"llama-3.1-8b BF16, {prefill.get('tokens', 4096)} tokens"),
    ]
