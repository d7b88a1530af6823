#!/usr/bin/env python3
"""Tries what gpu_check carries to another machine, without a build: carried_test.py."""
import pathlib
import re
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import carried
import limits

REPOSITORY = FOLDER.parent.parent
INPUTS = ["core/a.cc.o", "core/a.cc", "core/liba.a"]
DEPS = """core/a.cc.o: #deps 3, deps mtime 17 (VALID)
    ../../core/a.cc
    ../../../usr/include/fmt/core.h
    /usr/include/stdio.h

tests/t.cc.o: #deps 1, deps mtime 17 (VALID)
    /usr/include/gtest/gtest.h
""".splitlines()


class Carried(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="carried ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def test_knows_what_the_build_asks_for(self):
        lists = [REPOSITORY / "models", REPOSITORY / "tests" / "conformance", REPOSITORY / "tools"]
        paths = [folder / "CMakeLists.txt" for folder in lists]
        for folder in ("core", "plugins/host", "backends/cpu", "backends/cuda"):
            paths += (REPOSITORY / folder).rglob("CMakeLists.txt")
        packages, modules = set(), set()
        for path in paths:
            text = path.read_text()
            packages |= set(re.findall(r"find_package\((\w+)", text))
            modules |= set(re.findall(r"pkg_check_modules\(\w+ REQUIRED IMPORTED_TARGET ([\w-]+)\)", text))
            self.assertEqual(text.count("pkg_check_modules("), len(re.findall(r"pkg_check_modules\(\w+ REQUIRED IMP", text)))
        self.assertEqual(packages - set(carried.PACKAGES), {"PkgConfig"})
        self.assertEqual(modules, set(carried.MODULES))

    def test_leaves_out_what_comes_with_a_compiler(self):
        for package in ("libc6-dev", "libstdc++-12-dev", "linux-libc-dev", "libgcc-12-dev", "g++-12"):
            self.assertTrue(carried.COMPILER.fullmatch(package), package)
        for package in ("libfmt-dev", "zlib1g-dev", "libboost1.81-dev", "libssl-dev"):
            self.assertFalse(carried.COMPILER.fullmatch(package), package)
        self.assertEqual([bool(carried.WITH_COMPILER.match(name)) for name in ("libc.so.6", "libstdc++.so.6", "libcrypto.so.3")],
                         [True, True, False])

    def test_places_headers(self):
        self.assertEqual(carried.place("/usr/include/x86_64-linux-gnu/openssl/configuration.h"), "openssl/configuration.h")
        self.assertEqual(carried.place("/usr/include/boost/dll.hpp"), "boost/dll.hpp")

    def test_writes_packages_that_cmake_takes(self):
        files = {name: f"lib{name}.a" for _, names, _ in carried.PACKAGES.values() for name in names}
        files |= {name: f"lib{name}.a" for names, _ in carried.MODULES.values() for name in names} | {"fmt": "libfmt.so.9"}
        carried.write_cmake(self.folder / "cmake", files)
        text = (self.folder / "cmake" / "Findspdlog.cmake").read_text()
        self.assertIn("SPDLOG_COMPILED_LIB SPDLOG_FMT_EXTERNAL FMT_SHARED)", text)  # it is static, fmt is not
        self.assertLess(text.index("libspdlog.a"), text.index("libfmt.so.9"))
        self.assertIn('"${_carried}/lib/libminizip.a" "${_carried}/lib/libz.a"',
                      (self.folder / "cmake" / "FindPkgConfig.cmake").read_text())

    def test_refuses_a_folder_with_other_files(self):
        (self.folder / "mine.txt").write_text("")
        with self.assertRaisesRegex(limits.Failed, "has other files"):
            carried.pack(self.folder, self.folder)

    def test_sees_what_the_compilers_read_for_the_program(self):
        # ccache writes paths from the build's folder on.
        with unittest.mock.patch.object(carried, "ninja", side_effect=lambda _, tool, *more: INPUTS if tool == "inputs" else DEPS):
            self.assertEqual(carried.headers_read("/src/build/x"),
                             {"/src/core/a.cc", "/usr/include/fmt/core.h", "/usr/include/stdio.h"})

    def test_wants_a_build_that_is_complete(self):
        inputs = INPUTS + ["core/b.cc.o"]
        with unittest.mock.patch.object(carried, "ninja", side_effect=lambda _, tool, *more: inputs if tool == "inputs" else DEPS):
            with self.assertRaisesRegex(limits.Failed, "1 of 2 objects are missing, such as core/b.cc.o"):
                carried.headers_read("/src/build/x")

    def test_refuses_headers_of_unknown_origin(self):
        owned = {"/usr/include/fmt/core.h": "libfmt-dev", "/usr/include/stdio.h": "libc6-dev"}
        with unittest.mock.patch.object(carried, "owners", return_value=owned):
            files = {"/src/core/a.cc", "/usr/local/cuda-13/include/cuda.h", *owned}
            self.assertEqual(carried.carried_headers(files, "/src"), {"/usr/include/fmt/core.h": "libfmt-dev"})
            with self.assertRaisesRegex(limits.Failed, "/opt/x.h is of no package"):
                carried.carried_headers(files | {"/opt/x.h"}, "/src")


if __name__ == "__main__":
    unittest.main()
