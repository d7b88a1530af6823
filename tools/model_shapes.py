"""Shapes of known models, and the tensors that a GGUF file of each has: for files with random weights."""
import dataclasses
import math


@dataclasses.dataclass
class Shape:
    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    context: int
    epsilon: float
    rope_base: float = 0.0  # 0: learned positions
    rope_stretch: float = 0.0  # Llama 3's factor, by which its context is stretched; 0: none
    tied: bool = True  # embedding and head are one matrix

    @property
    def head_dim(self):
        return self.hidden // self.heads


# From the config.json of each on the Hugging Face hub.
SHAPES = {
    "smollm2-135m": Shape("llama", 576, 30, 9, 3, 1536, 49152, 8192, 1e-5, 1e5),
    "qwen2-0.5b": Shape("qwen2", 896, 24, 14, 2, 4864, 151936, 131072, 1e-6, 1e6),
    "llama-3.2-1b": Shape("llama", 2048, 16, 32, 8, 8192, 128256, 131072, 1e-5, 5e5, 32),
    "llama-3.1-8b": Shape("llama", 4096, 32, 32, 8, 14336, 128256, 131072, 1e-5, 5e5, 8, tied=False),
    "gpt2-124m": Shape("gpt2", 768, 12, 12, 12, 3072, 50257, 1024, 1e-5),
}


def matrices(shape):
    """[(name, rows, columns)] of all weights that are multiplied with."""
    hidden, dim = shape.hidden, shape.head_dim
    yield "token_embd.weight", shape.vocabulary, hidden
    if not shape.tied:
        yield "output.weight", shape.vocabulary, hidden
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        if shape.architecture == "gpt2":
            yield at + "attn_qkv.weight", 3 * hidden, hidden
        else:
            yield at + "attn_q.weight", hidden, hidden
            yield at + "attn_k.weight", shape.kv_heads * dim, hidden
            yield at + "attn_v.weight", shape.kv_heads * dim, hidden
            yield at + "ffn_gate.weight", shape.ffn, hidden
        yield at + "attn_output.weight", hidden, hidden
        yield at + "ffn_up.weight", shape.ffn, hidden
        yield at + "ffn_down.weight", hidden, shape.ffn


def vectors(shape):
    """[(name, dimensions, mean)] of what stays in float32."""
    hidden, dim = shape.hidden, shape.head_dim
    learned = shape.architecture == "gpt2"
    if learned:
        yield "position_embd.weight", (shape.context, hidden), 0
    norms = ["output_norm"]
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        norms += [at + "attn_norm", at + "ffn_norm"]
        if learned:
            for name, size in (("attn_qkv", 3 * hidden), ("attn_output", hidden), ("ffn_up", shape.ffn), ("ffn_down", hidden)):
                yield f"{at}{name}.bias", (size,), 0
        elif shape.architecture == "qwen2":
            for name, size in (("attn_q", hidden), ("attn_k", shape.kv_heads * dim), ("attn_v", shape.kv_heads * dim)):
                yield f"{at}{name}.bias", (size,), 0
    for name in norms:
        yield name + ".weight", (hidden,), 1
        if learned:
            yield name + ".bias", (hidden,), 0


def rope_factors(base, dim, stretch=32):
    """Llama 3's rope_scaling: factor `stretch`, low_freq_factor 1, high_freq_factor 4, trained with 8192 positions."""
    waves = [2 * math.pi * base ** (2 * i / dim) for i in range(dim // 2)]
    mix = [min(1.0, max(0.0, (8192 / wave - 1) / (4 - 1))) for wave in waves]
    return [1 / ((1 - each) / stretch + each) for each in mix]


def settings(shape):
    """[(key, value)] of the file's metadata, without the architecture's name before each key and without a tokenizer."""
    yield "context_length", shape.context
    yield "embedding_length", shape.hidden
    yield "block_count", shape.layers
    yield "feed_forward_length", shape.ffn
    yield "attention.head_count", shape.heads
    if shape.rope_base:
        yield "attention.head_count_kv", shape.kv_heads
        yield "rope.freq_base", shape.rope_base
        yield "rope.dimension_count", shape.head_dim
        yield "attention.layer_norm_rms_epsilon", shape.epsilon
    else:
        yield "attention.layer_norm_epsilon", shape.epsilon
