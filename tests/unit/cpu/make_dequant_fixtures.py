#!/usr/bin/env python3
"""Writes fixtures/TYPE.blocks.bin and fixtures/TYPE.f32.bin: random blocks and the float32 values they mean.

The values come from gguf-py, so that the C++ code is compared with other people's. Needs `pip install gguf` (made with
0.19.0). Run it in this folder; the same call writes the same bytes.
"""
import pathlib

import numpy
from gguf import GGMLQuantizationType, dequantize
from gguf.constants import GGML_QUANT_SIZES

# Where a block has its half-precision scales; MXFP4 has a byte of exponent instead.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
# Zeros, subnormal numbers, the smallest and largest normal ones, ordinary ones, infinity, NaN.
EXTREMES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x2E66, 0xB0CD, 0x7C00, 0x7E00]


def write(name, blocks, values):
    folder = pathlib.Path("fixtures")
    folder.mkdir(exist_ok=True)
    blocks.tofile(folder / f"{name}.blocks.bin")
    values.astype(numpy.float32).tofile(folder / f"{name}.f32.bin")


def main():
    random = numpy.random.default_rng(20240607)
    numpy.seterr(all="ignore")
    for name, offsets in SCALES.items():
        kind = GGMLQuantizationType[name]
        elements, size = GGML_QUANT_SIZES[kind]
        count = 12 if elements == 256 else 32
        blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
        for i in range(count):
            for j, offset in enumerate(offsets):
                ordinary = numpy.float16(random.normal() * 0.05).view(numpy.uint16)
                half = EXTREMES[(i + 3 * j) % len(EXTREMES)] if i < len(EXTREMES) else ordinary
                blocks[i, offset:offset + 2] = numpy.array([half], dtype=numpy.uint16).view(numpy.uint8)
        if name == "MXFP4":
            blocks[:6, 0] = [0, 1, 2, 127, 254, 255]
        write(name, blocks, dequantize(blocks, kind))
    halves = random.integers(0, 65536, 1024, dtype=numpy.uint16)
    halves[:len(EXTREMES)] = EXTREMES
    write("F16", halves, dequantize(halves, GGMLQuantizationType.F16))
    write("BF16", halves, dequantize(halves.view(numpy.uint8).reshape(1, -1), GGMLQuantizationType.BF16).reshape(-1))


if __name__ == "__main__":
    main()
