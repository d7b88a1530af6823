"""The step `build`: the machine as it is, and the program with the cpu and cuda plugins, built against what was carried."""
import functools
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import sys

from limits import Failed, need, run
from results import Skip

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
PACKED = "sources.txt"  # in the folder of what is carried
CONFIGURE_SECONDS, BUILD_SECONDS = 120, 420
QUERY = {"name": "gpu", "driver_version": "driver", "compute_cap": "compute_capability", "memory.total": "memory_MiB",
         "power.limit": "power_limit_W", "clocks.max.sm": "clock_MHz", "clocks.max.memory": "memory_clock_MHz"}


# What results come of, and no tests or pages.
SOURCES = ("CMakeLists.txt", "backends", "core", "models", "plugins", "tools")
NO_SOURCE = re.compile(r".*(_test\.[a-z]+|\.md|\.pyc)")
# Of parts that no program of ours has to do with.
ROOFS = ("tools/gpu/roofs.cu",)
TRANSFORMERS = ("tools/gpu/transformers_worker.py", "tools/gpu/step_bench.py", "tools/model_shapes.py")


@functools.cache
def hash_of(paths):
    """Of files, and of all in folders: their names and what is in them."""
    told = hashlib.sha256()
    for path in paths:
        whole = REPOSITORY / path
        for file in sorted(whole.rglob("*")) if whole.is_dir() else [whole]:
            if file.is_file() and not NO_SOURCE.fullmatch(file.name):
                told.update(f"{file.relative_to(whole.parent)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return told.hexdigest()[:16]


def hash_for(options, step, part):
    """Of what a part of the results comes of."""
    if step == "bench" and part == "roofs":
        return hash_of(ROOFS)
    if step == "bench" and part.endswith(" transformers"):
        return hash_of(TRANSFORMERS)
    return hash_of(SOURCES + ((options.program,) if options.given_program else ()))


def first_line(command, pattern=None):
    """Of what a program says of itself; None where it can't."""
    if not shutil.which(command[0]):
        return None
    done = run(command, 60)
    lines = [line for line in (done.out + done.err).splitlines() if not pattern or re.search(pattern, line)]
    return lines[0].strip() if done.status == 0 and lines else None


def gpu_facts():
    line = first_line(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"])
    return dict(zip(QUERY.values(), (part.strip() for part in line.split(",")))) if line else {}


def sources(carried_folder=None):
    """The commit, where git knows it, and whether files differ from it; else that of which was packed."""
    commit = first_line(["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"])
    packed = carried_folder / PACKED if carried_folder else None
    if not commit:
        known = packed is not None and packed.exists()
        return f"as packed: {packed.read_text().strip()}" if known else "not known: there is no repository of git"
    changed = run(["git", "-C", str(REPOSITORY), "status", "--porcelain", "--untracked-files=no"], 60).out.strip()
    return commit + (" with changes" if changed else "")


def machine(options):
    cpu = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    model = re.search(r"^model name\s*:\s*(.*)$", cpu, re.M)
    return {**gpu_facts(), "cpu": model.group(1) if model else platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "nvcc": first_line([nvcc() or "nvcc", "--version"], "release"), "compiler": first_line(["c++", "--version"]),
            "python": platform.python_version(), "sources": sources(options.carried)}


def nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def cublas():
    """libcublas of the toolkit, or of a Python package; None where the loader has to find it."""
    roots = [pathlib.Path(nvcc()).resolve().parent.parent / "lib64"] if nvcc() else []
    roots += [pathlib.Path(folder) / "nvidia" for folder in sys.path if folder]
    for root in roots:
        found = sorted(root.rglob("libcublas.so.*")) if root.is_dir() else []
        if found:
            return found[0]
    return None


def environment():
    """For backplane, whose plugin looks for cuBLAS where the loader does: in the folder that the probe takes it from."""
    library = cublas()
    if not library:
        return dict(os.environ)
    folders = [str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(folder for folder in folders if folder)}


def architectures():
    capability = gpu_facts().get("compute_capability", "")
    return capability.replace(".", "") if re.fullmatch(r"\d+\.\d", capability) else "native"


def build(options, seconds):
    """Configures anew, which is cheap; ninja knows what is up to date."""
    if not nvcc():
        raise Failed("nvcc is neither on PATH nor in /usr/local/cuda/bin")
    cards = options.architectures or architectures()
    command = ["cmake", "-S", REPOSITORY, "-B", options.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
               "-DBACKPLANE_TESTS=OFF", "-DBACKPLANE_BENCHMARKS=OFF", "-DBACKPLANE_BACKENDS=cpu;cuda",
               f"-DBACKPLANE_CUDA_ARCHITECTURES={cards}", f"-DCMAKE_CUDA_COMPILER={nvcc()}"]
    if options.carried:
        command.append(f"-DCMAKE_MODULE_PATH={options.carried.resolve() / 'cmake'}")
    configured = need(command, min(seconds, CONFIGURE_SECONDS))
    targets = ["backplane", "backplane_cpu", "backplane_cuda"]
    jobs = ["-j", options.jobs] if options.jobs else []
    built = need(["cmake", "--build", options.build, *jobs, "--target", *targets], seconds - configured.seconds)
    warnings = [line for line in (built.out + built.err).splitlines() if "warning" in line.lower()]
    return {"program": str(options.program), "architectures": cards, "configure_s": round(configured.seconds, 1),
            "build_s": round(built.seconds, 1), "warnings": warnings[:50]}


def devices(options, seconds):
    """What the program says of its devices; a reason why one that is to be tried can't start is a failure."""
    told = json.loads(need([options.program, "devices", "--json", *options.plugins()], seconds, env=environment()).out)["devices"]
    known = {device["name"]: device for device in told}
    reasons = [f"{name} is not available: {known.get(name, {}).get('reason') or 'there is none of this name'}"
               for name in options.devices() if not known.get(name, {}).get("available")]
    found = {"devices": [{key: device.get(key) for key in ("name", "description", "available", "reason", "memory")}
                         for device in told]}
    if reasons:
        error = Failed("; ".join(reasons))
        error.found = found
        raise error
    return found


def step(options, results):
    """Always anew: the sources may be others than in an earlier call."""
    results.forget("build")
    results.part("machine", "machine", 120, lambda seconds: machine(options), again=True)
    if options.given_program:
        built = results.part("build", "build", 60, lambda seconds: given(options), again=True)
    else:
        built = results.part("build", "build", BUILD_SECONDS, lambda seconds: build(options, seconds), again=True)
    if built and built["status"] in ("ok", "skipped"):
        results.part("build", "devices", 60, lambda seconds: devices(options, seconds), again=True)


def given(options):
    if not os.access(options.program, os.X_OK):
        raise Failed(f"{options.program} is no program")
    raise Skip(f"built elsewhere: {options.program}")
