"""What a step has to move and to compute at least, by formula: every matrix and the keys and values that are seen move once."""
import random_gguf
from model_shapes import matrices

KV_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "Q8_0": 34 / 32}


def elements(shape, head):
    """Of the layers' matrices and, if wanted, of the head; an embedding that is no head isn't multiplied with."""
    out = 0
    for name, rows, columns in matrices(shape):
        is_head = name == ("token_embd.weight" if shape.tied else "output.weight")
        if name.startswith("blk.") or (head and is_head):
            out += rows * columns
    return out


def weight_bytes(shape, kind):
    _, per_block, block_bytes = random_gguf.TYPES[kind]
    return elements(shape, head=True) / per_block * block_bytes


def kv_bytes_per_token(shape, kv_type):
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * KV_BYTES[kv_type]


def attention_flops(shape, keys):
    """Of one token that sees so many keys: products with keys and with values, in all layers."""
    return 4 * shape.layers * shape.heads * shape.head_dim * keys


def decode_step(shape, kind, kv_type, batch, depth, tokens):
    """(bytes, flops) of the middle one of `tokens` steps, with `depth` tokens in the cache before the first."""
    seen = depth + (tokens + 1) / 2
    moved = weight_bytes(shape, kind) + batch * seen * kv_bytes_per_token(shape, kv_type)
    return moved, batch * (2 * elements(shape, head=True) + attention_flops(shape, seen))


def prompt(shape, kind, tokens):
    """(bytes, flops) of a prompt; the head is computed for its last token."""
    head = elements(shape, head=True) - elements(shape, head=False)
    flops = 2 * elements(shape, head=False) * tokens + 2 * head + attention_flops(shape, (tokens + 1) / 2) * tokens
    return weight_bytes(shape, kind), flops


def of_case(shape, kind, kv_type, case):
    """(bytes, flops, tokens) of what takes tokens / (tokens per second)."""
    if case["kind"] == "prefill":
        return *prompt(shape, kind, case["tokens"]), case["tokens"]
    moved, flops = decode_step(shape, kind, kv_type, case["batch"], case["depth"], case["tokens"])
    return moved, flops, case["batch"]
