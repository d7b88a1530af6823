#!/usr/bin/env python3
"""Tests tools/cuda_kernels on recorded output of the compiler."""
import importlib.machinery
import importlib.util
import pathlib
import unittest

PATH = pathlib.Path(__file__).with_name("cuda_kernels")
LOADER = importlib.machinery.SourceFileLoader("cuda_kernels", str(PATH))
SPEC = importlib.util.spec_from_loader("cuda_kernels", LOADER)
cuda_kernels = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(cuda_kernels)

OUTPUT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3oneIfEvi' for 'sm_80'
ptxas info    : Function properties for _Z3oneIfEvi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 8192 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 5.0 ms
ptxas info    : Compiling entry function '_Z3oneIdEvi' for 'sm_80'
ptxas info    : Function properties for _Z3oneIdEvi
    16 bytes stack frame, 12 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_Z3twov' for 'sm_90'
ptxas info    : Function properties for _Z3twov
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 9 registers
"""


class Parsing(unittest.TestCase):
    def setUp(self):
        self.kernels = cuda_kernels.parse(OUTPUT)

    def test_reads_each_kernel(self):
        self.assertEqual([(k.name, k.arch, k.registers, k.shared, k.stack, k.spills) for k in self.kernels],
                         [("_Z3oneIfEvi", "sm_80", 40, 8192, 0, 0), ("_Z3oneIdEvi", "sm_80", 255, 0, 16, 36),
                          ("_Z3twov", "sm_90", 9, 0, 0, 0)])

    def test_puts_instances_of_a_template_together(self):
        names = cuda_kernels.readable([k.name for k in self.kernels])
        self.assertEqual(names["_Z3oneIfEvi"], "one<float>")
        for kernel in self.kernels:
            kernel.name = names[kernel.name]
        rows = cuda_kernels.table(self.kernels, each=False).splitlines()
        self.assertEqual(rows[2:], ["| `one` | sm_80 | 2 | 40 to 255 | 0 to 8192 | 0 to 16 | 0 to 36 |",
                                    "| `two` | sm_90 | 1 | 9 | 0 | 0 | 0 |"])
        self.assertEqual(len(cuda_kernels.table(self.kernels, each=True).splitlines()), 5)

    def test_finds_tensor_core_instructions(self):
        ptx = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}\nfma.rn.f32 %f1;\nlmma.sync no"
        self.assertEqual([m[0] for m in cuda_kernels.TENSOR.finditer(ptx)],
                         ["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"])


if __name__ == "__main__":
    unittest.main()
