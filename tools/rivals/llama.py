"""llama.cpp and its descendant ik_llama.cpp: fetching, building, measuring."""
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile

from programs import Failed, json_lines, note, run, run_rival

TOOLS = ("llama-bench", "llama-batched-bench", "llama-perplexity", "llama-quantize")
# Of the package index: a source distribution that holds the whole tree, and where in it.
SOURCES = {"llama.cpp": ("llama-cpp-python", "llama_cpp_python-*/vendor/llama.cpp"),
           "ik_llama.cpp": ("ik-llama-cpp-python", "ik_llama_cpp_python-*/vendor/ik_llama.cpp")}


def build(name, folder):
    """Returns the folder with the programs."""
    package, tree = SOURCES[name]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(f"{tree}/CMakeLists.txt")):
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", folder, package]
        failed = subprocess.run([str(part) for part in command], capture_output=True)
        archives = sorted(folder.glob(f"{package.replace('-', '_')}-*.tar.gz"))
        if not archives:
            sys.exit(f"bench_rivals: pip gave no source of {package}:\n{failed.stderr.decode()[-2000:]}")
        with tarfile.open(archives[-1]) as archive:
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    source = sorted(folder.glob(tree))[-1]
    if name == "ik_llama.cpp":
        add_build_info(source)
    note(f"building {source}")
    more = ["-DLLAMA_BUILD_EXAMPLES=OFF"] if name == "llama.cpp" else ["-DGGML_IQK_FA_ALL_QUANTS=OFF"]
    run(["cmake", "-S", source, "-B", source / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
         "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF", *more])
    run(["cmake", "--build", source / "build", "--target", *TOOLS])
    return source / "build" / "bin"


def add_build_info(source):
    """A script that ik_llama.cpp's distribution forgets, and without which it doesn't build: what the version is."""
    script = source / "common" / "cmake" / "build-info-gen-cpp.cmake"
    if not script.exists():
        script.parent.mkdir(exist_ok=True)
        script.write_text('set(BUILD_NUMBER 0)\nset(BUILD_COMMIT unknown)\nset(BUILD_COMPILER unknown)\n'
                          'set(BUILD_TARGET unknown)\n'
                          'configure_file("${CMAKE_CURRENT_SOURCE_DIR}/common/build-info.cpp.in"\n'
                          '               "${CMAKE_CURRENT_SOURCE_DIR}/common/build-info.cpp")\n')


def common_options(options, threads, flash):
    common = ["-m", pathlib.Path(options.model).absolute(), "-t", threads, "-fa", flash]
    if options.kv_type:
        common += ["-ctk", options.kv_type, "-ctv", options.kv_type]
    return common


def batched_command(folder, common, options):
    length = options.batch_depth + options.batch_tokens
    return [folder / "llama-batched-bench", *common, "-c", max(options.batch) * length + 64, "-b", 2048, "-ub", 512, "-npp",
            max(1, options.batch_depth), "-ntg", options.batch_tokens, "-npl", ",".join(map(str, options.batch))]


def flash_settings(options):
    # Other types of the cache need flash attention.
    return (0, 1) if options.kv_type in (None, "f32", "f16", "bf16") else (1,)


class Llama:
    name = "llama.cpp"

    def __init__(self, folder):
        self.folder = folder.absolute()

    def settings(self, options):
        """{setting: arguments of measure}"""
        return {f"-fa {flash} -t {threads}": (threads, flash)
                for flash in flash_settings(options) for threads in options.rival_threads}

    def round(self, options):
        """{setting: {column: tokens/s}}, and why columns are missing that no setting has."""
        settings, reasons = {}, {}
        for setting, arguments in self.settings(options).items():
            settings[setting] = {}
            for part in (self.bench, self.batched_bench):
                try:
                    settings[setting].update(part(options, *arguments))
                except Failed as failed:
                    note(f"{self.name} {setting}: {failed}")
                    reasons.update({column: str(failed) for column in options.columns()
                                    if column.startswith("batch") == (part == self.batched_bench)})
        return settings, {column: reason for column, reason in reasons.items()
                          if not any(column in speeds for speeds in settings.values())}

    def bench(self, options, threads, flash):
        speeds = {}
        out = run_rival([self.folder / "llama-bench", *common_options(options, threads, flash), "-p", options.prefill, "-n",
                         options.decode, "-d", ",".join(map(str, sorted({0, *options.depth}))), "-r", options.repeat, "-o",
                         "jsonl"])
        for row in json_lines(out.stdout):
            if row["n_prompt"] and row["n_depth"] == 0:
                speeds[f"prefill {row['n_prompt']}"] = statistics.median(row["samples_ts"])
            elif row["n_gen"] and row["n_depth"] in options.depth:
                speeds[f"decode, depth {row['n_depth']}"] = statistics.median(row["samples_ts"])
        return speeds

    def batched_bench(self, options, threads, flash):
        if not options.batch:
            return {}
        command = batched_command(self.folder, common_options(options, threads, flash), options)
        out = run_rival([*command, "--output-format", "jsonl"])
        return {f"batch {row['pl']}": row["speed_tg"] for row in json_lines(out.stdout + b"\n" + out.stderr)}


class IkLlama(Llama):
    """The same programs as they were when it branched off, with repacking at the load beside."""

    name = "ik_llama.cpp"

    def settings(self, options):
        return {f"-fa {flash} -rtr {repack} -t {threads}": (threads, flash, repack)
                for flash in flash_settings(options) for repack in (0, 1) for threads in options.rival_threads}

    def bench(self, options, threads, flash, repack=0):
        speeds = {}
        deep = [part for depth in options.depth if depth for part in ("-gp", f"{depth},{options.decode}")]
        with tempfile.TemporaryDirectory() as folder:  # they leave logs where they run
            out = run_rival([self.folder / "llama-bench", *common_options(options, threads, flash), "-rtr", repack, "-p",
                             options.prefill, "-n", options.decode, *deep, "-r", options.repeat, "-o", "json"], cwd=folder)
        for row in json.loads(out.stdout[out.stdout.index(b"["):]):
            speed = statistics.median(row["samples_ts"])
            if not row["n_gen"]:
                speeds[f"prefill {row['n_prompt']}"] = speed
            elif row["n_prompt"] in options.depth:
                speeds[f"decode, depth {row['n_prompt']}"] = speed
        return speeds

    def batched_bench(self, options, threads, flash, repack=0):
        if not options.batch:
            return {}
        command = batched_command(self.folder, common_options(options, threads, flash), options)
        with tempfile.TemporaryDirectory() as folder:
            out = run_rival(command + (["-rtr"] if repack else []), cwd=folder)
        speeds = {}
        # | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |
        for line in (out.stdout + b"\n" + out.stderr).decode(errors="replace").splitlines():
            if re.match(r"\|\s*\d+ \|", line):
                cells = line.split("|")
                speeds[f"batch {int(cells[3])}"] = float(cells[8])
        return speeds
