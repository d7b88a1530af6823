#!/usr/bin/env python3
"""Tries random_model on small shapes: random_model_test.py. Skipped (status 77) where gguf is not installed."""
import importlib.machinery
import importlib.util
import math
import pathlib
import sys
import tempfile
import unittest

try:
    import gguf
except ImportError:
    print("skipped: there is no gguf for this Python")
    sys.exit(77)

sys.dont_write_bytecode = True
PATH = str(pathlib.Path(__file__).resolve().parent / "random_model")
LOADER = importlib.machinery.SourceFileLoader("random_model", PATH)
SPEC = importlib.util.spec_from_loader("random_model", LOADER)
random_model = importlib.util.module_from_spec(SPEC)
sys.modules["random_model"] = random_model
LOADER.exec_module(random_model)
import model_shapes

Shape = model_shapes.Shape


class RandomModel(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="random model ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.tokenizer = self.folder / "tokenizer.gguf"
        writer = gguf.GGUFWriter(self.tokenizer, "llama")
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b", "c"])
        writer.add_token_types([1, 1, 3])
        writer.add_bos_token_id(2)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def write(self, shape, half=True, name="out.gguf"):
        random_model.write(self.folder / name, "small", shape, self.tokenizer, half, 1)
        return gguf.GGUFReader(self.folder / name)

    def test_pads_the_vocabulary(self):
        read = self.write(Shape("llama", 64, 1, 4, 2, 96, 5, 32, 1e-5, 1e4))
        self.assertEqual(read.fields["tokenizer.ggml.tokens"].contents(), ["a", "b", "c", "<unused 3>", "<unused 4>"])
        self.assertEqual(read.fields["tokenizer.ggml.token_type"].contents(), [1, 1, 3, 5, 5])
        self.assertEqual(read.fields["tokenizer.ggml.bos_token_id"].contents(), 2)
        self.assertEqual(read.fields["llama.attention.head_count_kv"].contents(), 2)

    def test_cuts_the_vocabulary(self):
        read = self.write(Shape("llama", 64, 1, 4, 2, 96, 2, 32, 1e-5, 1e4))
        self.assertEqual(read.fields["tokenizer.ggml.tokens"].contents(), ["a", "b"])

    def test_draws_matrices_and_leaves_norms_near_one(self):
        tensors = {tensor.name: tensor for tensor in self.write(Shape("llama", 64, 2, 4, 2, 96, 500, 32, 1e-5, 1e4)).tensors}
        embedding = tensors["token_embd.weight"].data
        self.assertEqual((embedding.shape, embedding.dtype), ((500, 64), "float16"))
        self.assertAlmostEqual(float(embedding.astype("float32").std()), 0.02, places=3)
        self.assertEqual(tensors["blk.1.attn_k.weight"].data.shape, (32, 64))
        norm = tensors["blk.1.ffn_norm.weight"].data
        self.assertEqual(norm.dtype, "float32")
        self.assertAlmostEqual(float(norm.mean()), 1, places=1)

    def test_has_what_each_architecture_has(self):
        qwen = {tensor.name for tensor in self.write(Shape("qwen2", 64, 1, 4, 2, 96, 3, 32, 1e-6, 1e6)).tensors}
        gpt2 = {tensor.name for tensor in self.write(Shape("gpt2", 64, 1, 4, 4, 96, 3, 32, 1e-5), name="b.gguf").tensors}
        self.assertLessEqual({"blk.0.attn_q.bias", "blk.0.ffn_gate.weight"}, qwen)
        self.assertNotIn("blk.0.ffn_up.bias", qwen)
        self.assertLessEqual({"position_embd.weight", "blk.0.attn_qkv.bias", "blk.0.ffn_norm.bias", "output_norm.bias"}, gpt2)
        self.assertNotIn("blk.0.ffn_gate.weight", gpt2)

    def test_the_shapes_have_the_parameters_that_are_published(self):
        # The model cards' numbers of parameters, an embedding that is the head counted once.
        published = {"smollm2-135m": 134515008, "qwen2-0.5b": 494032768, "llama-3.2-1b": 1235814400,
                     "llama-3.1-8b": 8030261248, "gpt2-124m": 124439808}
        for name, shape in model_shapes.SHAPES.items():
            count = sum(rows * columns for _, rows, columns in model_shapes.matrices(shape))
            count += sum(math.prod(size) for _, size, _ in model_shapes.vectors(shape))
            self.assertEqual(count, published[name], name)

    def test_rope_factors_of_llama_3(self):
        factors = model_shapes.rope_factors(5e5, 64)
        self.assertEqual((len(factors), factors[0], factors[-1]), (32, 1, 32))
        self.assertTrue(all(a <= b for a, b in zip(factors, factors[1:])))


if __name__ == "__main__":
    unittest.main()
