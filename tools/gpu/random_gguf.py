"""Writes GGUF files with random weights and no tokenizer, at the speed of the disk and with nothing but Python.

A tensor's bytes are a stretch of one random run of blocks, repeated; where a tensor begins in the run depends on its name. The
run has a prime number of 256 elements, so that rows repeat late: after 1021 rows of 256. Quantized blocks have the scales that
give their values the deviation of the others.
"""
import math
import pathlib
import random
import struct
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from model_shapes import matrices, rope_factors, settings, vectors

DEVIATION = 0.02  # of all weights, unless told otherwise
UNIT = 256  # elements; a whole number of blocks of every type
UNITS = 1021
CHUNK = 32 << 20  # bytes of a write, at least
ALIGNMENT = 32
UINT32, FLOAT32, STRING = 4, 6, 8  # GGUF's types of values

# (GGUF's number, elements of a block, bytes of a block)
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
         "BF16": (30, 1, 2)}


def fits(shape, kind):
    """Whether all rows of the shape are whole blocks of the type."""
    return all(columns % TYPES[kind][1] == 0 for _, _, columns in matrices(shape))


def size_of(kind, elements):
    _, per_block, block_bytes = TYPES[kind]
    return elements // per_block * block_bytes


# --- random blocks -----------------------------------------------------------------------------------------------------------


def bfloat16(value):
    """Bytes of the nearest one."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def floats(source, kind, count, deviation, mean=0):
    pack = {"F32": lambda value: struct.pack("<f", value), "F16": lambda value: struct.pack("<e", value),
            "BF16": bfloat16}[kind]
    values = [pack(source.gauss(mean, deviation)) for _ in range(4096)]
    return b"".join(source.choices(values, k=count))


def scales(source, middle):
    """Scales of blocks, as F16, within a third of the middle."""
    return [struct.pack("<e", middle * source.uniform(2 / 3, 4 / 3)) for _ in range(256)]


def q4_0(source, count, deviation):
    """(q - 8) * d, with q uniform from 0 to 15."""
    d = scales(source, deviation / 4.6)
    return b"".join(source.choice(d) + source.randbytes(16) for _ in range(count))


def q8_0(source, count, deviation):
    """q * d, with q uniform from -128 to 127."""
    d = scales(source, deviation / 74)
    return b"".join(source.choice(d) + source.randbytes(32) for _ in range(count))


def packed_6_bits(low, high):
    """Twelve bytes of Q4_K: eight scales and eight minima of 6 bits each."""
    first = bytes(low[i] & 63 | (low[i + 4] >> 4) << 6 for i in range(4))
    second = bytes(high[i] & 63 | (high[i + 4] >> 4) << 6 for i in range(4))
    return first + second + bytes(low[i] & 15 | (high[i] & 15) << 4 for i in range(4, 8))


def q4_k(source, count, deviation):
    """q * d * scale - dmin * minimum, with q uniform from 0 to 15; the minimum is the scale and dmin is 7.5 d, so that the
    mean is 0."""
    out = []
    middle = deviation / (4.6 * 48)
    for _ in range(count):
        d = middle * source.uniform(2 / 3, 4 / 3)
        blocks = [source.randint(33, 63) for _ in range(8)]
        out.append(struct.pack("<ee", d, 7.5 * d) + packed_6_bits(blocks, blocks) + source.randbytes(128))
    return b"".join(out)


def run_of(kind, seed, deviation):
    """UNITS * UNIT elements."""
    source = random.Random(f"{kind} {seed}")
    make = {"Q4_0": q4_0, "Q8_0": q8_0, "Q4_K": q4_k}.get(kind)
    count = UNITS * UNIT // TYPES[kind][1]
    return make(source, count, deviation) if make else floats(source, kind, count, deviation)


# --- the file ----------------------------------------------------------------------------------------------------------------


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    kind, form = (FLOAT32, "<If") if isinstance(value, float) else (UINT32, "<II")
    return text(key) + struct.pack(form, kind, value)


def tensors_of(shape, kind):
    """[(name, dimensions with the row's length first, type, mean)]; a mean of None: the factors of rope."""
    for name, rows, columns in matrices(shape):
        yield name, (columns, rows), kind, 0
    for name, size, mean in vectors(shape):
        yield name, tuple(reversed(size)), "F32", mean
    if shape.rope_stretch:
        yield "rope_freqs.weight", (shape.head_dim // 2,), "F32", None


def header(shape, name, tensors):
    pairs = [("general.architecture", shape.architecture), ("general.name", name), ("general.alignment", ALIGNMENT)]
    pairs += [(f"{shape.architecture}.{key}", value) for key, value in settings(shape)]
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(pairs))] + [entry(*pair) for pair in pairs]
    at = 0
    for tensor, dimensions, kind, _ in tensors:
        out.append(text(tensor) + struct.pack("<I", len(dimensions)) + struct.pack(f"<{len(dimensions)}Q", *dimensions))
        out.append(struct.pack("<IQ", TYPES[kind][0], at))
        at += padded(size_of(kind, math.prod(dimensions)))
    return b"".join(out)


def padded(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


class Tiles:
    """The run of a type, repeated until a write of it is large."""

    def __init__(self, kind, seed, deviation):
        run = run_of(kind, seed, deviation)
        self.block, self.period = TYPES[kind][2], len(run)
        self.data = memoryview(run * -(-(CHUNK + self.period) // self.period))

    def write(self, file, name, size):
        at = zlib.crc32(name.encode()) * self.block % self.period
        while size > 0:
            part = self.data[at : at + min(size, CHUNK)]
            file.write(part)
            at, size = (at + len(part)) % self.period, size - len(part)


def write(path, name, shape, kind, seed=0, deviation=DEVIATION):
    """Returns the bytes written. The file is `path` only when it is complete."""
    if not fits(shape, kind):
        raise ValueError(f"rows of {name} are no whole blocks of {kind}")
    tensors = list(tensors_of(shape, kind))
    matrix_names = {name for name, _, _ in matrices(shape)}
    tiles, source = Tiles(kind, seed, deviation), random.Random(seed)
    part = pathlib.Path(f"{path}.part")
    with open(part, "wb") as file:
        head = header(shape, name, tensors)
        file.write(head + bytes(padded(len(head)) - len(head)))
        for tensor, dimensions, of, mean in tensors:
            count = math.prod(dimensions)
            size = size_of(of, count)
            if mean is None:
                factors = rope_factors(shape.rope_base, shape.head_dim, shape.rope_stretch)
                file.write(struct.pack(f"<{count}f", *factors))
            elif tensor in matrix_names:
                tiles.write(file, tensor, size)
            else:
                file.write(floats(source, "F32", count, deviation, mean))
            file.write(bytes(padded(size) - size))
        written = file.tell()
    part.rename(path)
    return written
