#!/usr/bin/env python3
"""Tries random_gguf on small shapes: random_gguf_test.py.

BACKPLANE_PROGRAM names a backplane that reads what was written; without, that is skipped, and so is gguf's reader where it isn't
installed.
"""
import json
import math
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import model_shapes
import random_gguf

try:
    import gguf
except ImportError:
    gguf = None

PROGRAM = os.environ.get("BACKPLANE_PROGRAM", "")
SMALL = model_shapes.Shape("llama", 256, 1, 4, 2, 512, 300, 128, 1e-5, 1e4, 8, tied=False)


def half(data, at):
    return struct.unpack_from("<e", data, at)[0]


# Values of a block, as the formats' documentation has them.
def values_q4_0(block):
    return [half(block, 0) * ((byte >> shift & 15) - 8) for shift in (0, 4) for byte in block[2:18]]


def values_q8_0(block):
    return [half(block, 0) * value for value in struct.unpack("<32b", block[2:34])]


def values_q4_k(block):
    d, dmin, packed, out = half(block, 0), half(block, 2), block[4:16], []
    for i in range(8):
        if i < 4:
            scale, least = packed[i] & 63, packed[i + 4] & 63
        else:
            scale = packed[i + 4] & 15 | packed[i - 4] >> 6 << 4
            least = packed[i + 4] >> 4 | packed[i] >> 6 << 4
        nibbles = [byte >> 4 * (i % 2) & 15 for byte in block[16 + 32 * (i // 2) : 48 + 32 * (i // 2)]]
        out += [d * scale * value - dmin * least for value in nibbles]
    return out


class RandomGguf(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="random gguf ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def values(self, kind, count=64):
        run, size = random_gguf.run_of(kind, 0, 0.02), random_gguf.TYPES[kind][2]
        decode = {"Q4_0": values_q4_0, "Q8_0": values_q8_0, "Q4_K": values_q4_k}[kind]
        return [value for i in range(count) for value in decode(run[i * size : (i + 1) * size])]

    def test_quantized_blocks_have_the_deviation_of_the_others(self):
        for kind in ("Q4_0", "Q8_0", "Q4_K"):
            with self.subTest(kind=kind):
                values = self.values(kind)
                self.assertAlmostEqual(statistics.pstdev(values), 0.02, delta=0.003)
                self.assertAlmostEqual(statistics.mean(values), 0, delta=0.003)  # Q4_0's numbers are from -8 to 7
                self.assertEqual(len(random_gguf.run_of(kind, 0, 0.02)), random_gguf.size_of(kind, random_gguf.UNITS * 256))

    def test_bf16_is_the_nearest(self):
        for value, bits in ((1.0, 0x3F80), (-2.0, 0xC000), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (0.0, 0)):
            self.assertEqual(struct.unpack("<H", random_gguf.bfloat16(value))[0], bits, value)

    def test_rows_repeat_late(self):
        random_gguf.write(self.folder / "m.gguf", "m", SMALL, "Q8_0")
        data = (self.folder / "m.gguf").read_bytes()
        start = len(data) - sum(random_gguf.padded(random_gguf.size_of(kind, math.prod(size)))
                                for _, size, kind, _ in random_gguf.tensors_of(SMALL, "Q8_0"))
        row = random_gguf.size_of("Q8_0", SMALL.hidden)
        rows = {data[start + i * row : start + (i + 1) * row] for i in range(SMALL.vocabulary)}
        self.assertEqual((start % 32, len(rows)), (0, SMALL.vocabulary))

    def test_refuses_rows_that_are_no_whole_blocks(self):
        self.assertFalse(random_gguf.fits(model_shapes.SHAPES["smollm2-135m"], "Q4_K"))
        with self.assertRaisesRegex(ValueError, "no whole blocks of Q4_K"):
            random_gguf.write(self.folder / "m.gguf", "m", model_shapes.SHAPES["smollm2-135m"], "Q4_K")

    @unittest.skipUnless(gguf, "there is no gguf for this Python")
    def test_gguf_reads_it(self):
        for kind in random_gguf.TYPES:
            with self.subTest(kind=kind):
                random_gguf.write(self.folder / "m.gguf", "m", SMALL, kind)
                read = gguf.GGUFReader(self.folder / "m.gguf")
                self.assertEqual(read.fields["llama.attention.head_count_kv"].contents(), 2)
                tensors = {tensor.name: tensor for tensor in read.tensors}
                up = tensors["blk.0.ffn_up.weight"]
                self.assertEqual((up.tensor_type.name, [int(size) for size in up.shape]), (kind, [256, 512]))
                self.assertAlmostEqual(float(gguf.quants.dequantize(up.data, up.tensor_type).std()), 0.02, delta=0.003)
                self.assertAlmostEqual(float(tensors["output_norm.weight"].data.mean()), 1, delta=0.01)

    @unittest.skipUnless(os.access(PROGRAM, os.X_OK), "BACKPLANE_PROGRAM is no program")
    def test_backplane_reads_it(self):
        gpt2 = model_shapes.Shape("gpt2", 256, 1, 4, 4, 512, 300, 128, 1e-5)
        for shape, kind in ((SMALL, "Q4_K"), (SMALL, "BF16"), (gpt2, "Q4_0")):
            with self.subTest(architecture=shape.architecture, kind=kind):
                path = self.folder / "m.gguf"
                random_gguf.write(path, "m", shape, kind)
                told = subprocess.run([PROGRAM, "inspect", path], capture_output=True, text=True)
                self.assertEqual(told.returncode, 0, told.stderr)
                self.assertRegex(told.stdout, rf"{kind} +\[512, 256\] +\"blk.0.ffn_up.weight\"")
                ran = subprocess.run([PROGRAM, "run", path, "--prompt-ids", "1,2,3", "-n", "2", "--temperature", "0", "--device",
                                      "cpu:f32", "--no-tune", "--json"], capture_output=True, text=True)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                self.assertEqual(len(json.loads(ran.stdout)["ids"]), 2)


if __name__ == "__main__":
    unittest.main()
