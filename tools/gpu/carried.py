"""What a build needs of the distribution's packages, in a folder that may lie anywhere:

  include/   headers: those that an existing build has read, and the rest of their libraries, as other compilers may read those
  lib/       static libraries, or shared ones where a package has no others, with what these need
  cmake/     a FindNAME.cmake for each, which the build prefers to all others (CMAKE_MODULE_PATH)

Neither the packages, nor their own CMake files, nor pkg-config have to be where it is used; a C++ compiler with its libraries and
the CUDA toolkit do.
"""
import os
import pathlib
import re
import shutil
import subprocess

from limits import Failed, need

TARGETS = ("bin/backplane", "lib/backplane/plugins/backplane_cpu.so", "lib/backplane/plugins/backplane_cuda.so")
# Come with a compiler; everything else that a package owns is carried.
COMPILER = re.compile(r"(libc6|linux-libc|libcrypt|libstdc\+\+-\d+|libgcc-\d+)-dev|(gcc|g\+\+|cpp)-.*|cuda-.*|libnvidia-.*")
TOOLKIT = re.compile(r"/usr/local/cuda[^/]*/")
WITH_COMPILER = re.compile(r"(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux-x86-64|linux-vdso)\.so")
LARGE = {"boost"}  # folders of headers that aren't taken as a whole

# What the build asks CMake for: package -> (target, libraries in the linker's order, definitions).
PACKAGES = {
    "Boost": ("Boost::headers", (), ()),
    "CLI11": ("CLI11::CLI11", (), ()),
    "fmt": ("fmt::fmt", ("fmt",), ("FMT_SHARED",)),
    "nlohmann_json": ("nlohmann_json::nlohmann_json", (), ()),
    "OpenSSL": ("OpenSSL::Crypto", ("crypto",), ()),
    "simdjson": ("simdjson::simdjson", ("simdjson",), ("SIMDJSON_THREADS_ENABLED=1",)),
    "spdlog": ("spdlog::spdlog", ("spdlog", "fmt"),
               ("SPDLOG_COMPILED_LIB", "SPDLOG_SHARED_LIB", "SPDLOG_FMT_EXTERNAL", "FMT_SHARED")),
}
# What it asks pkg-config for: module -> (libraries, folder of headers in include/).
MODULES = {"minizip": (("minizip", "z"), "minizip"), "libpcre2-8": (("pcre2-8",), ""), "libutf8proc": (("utf8proc",), "")}
SHARED_ONLY = {"FMT_SHARED": "fmt", "SPDLOG_SHARED_LIB": "spdlog"}  # definitions that a static library mustn't have

FIND_PACKAGE = """# Written by tools/gpu_check: {name}, as carried beside this file.
if(NOT TARGET {target})
  add_library({target} INTERFACE IMPORTED)
  target_include_directories({target} INTERFACE "${{CMAKE_CURRENT_LIST_DIR}}/../include")
  target_compile_definitions({target} INTERFACE {definitions})
  target_link_libraries({target} INTERFACE {libraries})
endif()
set({name}_FOUND TRUE)
"""

FIND_PKG_CONFIG = """# Written by tools/gpu_check: stands in for pkg-config, for what is carried beside this file.
set(PkgConfig_FOUND TRUE)
set(PKG_CONFIG_FOUND TRUE)
set(_carried "${CMAKE_CURRENT_LIST_DIR}/..")
# pkg_check_modules(NAME REQUIRED IMPORTED_TARGET MODULE)
macro(pkg_check_modules _name _required _imported _module)
  if(NOT TARGET PkgConfig::${_name})
    add_library(PkgConfig::${_name} INTERFACE IMPORTED)
    target_include_directories(PkgConfig::${_name} INTERFACE "${_carried}/include")
    set(${_name}_FOUND FALSE)
@modules@
    if(NOT ${_name}_FOUND)
      message(FATAL_ERROR "${_module} is not carried: tools/gpu/carried.py lists what is")
    endif()
  endif()
  set(${_name}_FOUND TRUE)
endmacro()
"""

MODULE = """    if("${{_module}}" STREQUAL "{module}")
      target_include_directories(PkgConfig::${{_name}} INTERFACE "${{_carried}}/include/{folder}")
      target_link_libraries(PkgConfig::${{_name}} INTERFACE {libraries})
      set(${{_name}}_FOUND TRUE)
    endif()"""


# --- headers -----------------------------------------------------------------------------------------------------------------


def ninja(build, *words):
    return need(["ninja", "-n", "-C", build, "-t", *words], 60).out.splitlines()


def headers_read(build, targets=TARGETS):
    """Absolute paths of all files that the compilers read for these targets."""
    inputs = [line for line in ninja(build, "inputs", *targets) if line.endswith(".o")]
    wanted, files, current = set(inputs), set(), None
    known = set()
    for line in ninja(build, "deps"):
        if line.startswith("    "):
            if current in wanted:
                files.add(os.path.normpath(os.path.join(build, line.strip())))
        elif ": #deps" in line:
            current = line.split(": #deps")[0]
            known.add(current)
    lacking = sorted(wanted - known)
    if lacking:
        raise Failed(f"{build} isn't built: {len(lacking)} of {len(wanted)} objects are missing, such as {lacking[0]}")
    return files


def owners(files):
    """{file: package}; files of no package are missing."""
    listed = sorted(files)
    owner = {}
    for start in range(0, len(listed), 500):
        done = subprocess.run(["dpkg", "-S", *listed[start : start + 500]], capture_output=True, text=True)
        for line in done.stdout.splitlines():
            package, _, path = line.partition(": ")
            owner[path] = package.split(":")[0].split(",")[0]
    return owner


def sources_of(build):
    """The repository that the build is of."""
    cache = build / "CMakeCache.txt"
    found = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text() if cache.exists() else "", re.M)
    if not found:
        raise Failed(f"{build} is no folder that CMake has built in")
    return found.group(1)


def carried_headers(files, repository):
    """Those that no compiler brings. Raises Failed for headers of unknown origin."""
    outside = {path for path in files if not path.startswith(f"{repository}/") and not TOOLKIT.match(path)}
    owner = owners(outside)
    strange = sorted(outside - set(owner))
    if strange:
        raise Failed(f"{strange[0]} is of no package, of {len(strange)} such files: it can't be known whether to carry it")
    return {path: package for path, package in owner.items() if not COMPILER.fullmatch(package)}


def place(path):
    """Where a header goes, from include/."""
    relative = re.sub(r"^/usr/include/", "", path)
    return re.sub(r"^[a-z0-9_]+-linux-gnu/", "", relative)


def with_neighbors(paths):
    """The headers, and all others in their libraries' folders."""
    found = {}
    for path in sorted(paths):
        found[place(path)] = path
        top = place(path).split("/")[0]
        root = pathlib.Path(path[: path.index(top) + len(top)])
        if root.is_dir() and top not in LARGE and root.name == top:
            for each in root.rglob("*"):
                if each.is_file():
                    found.setdefault(place(str(each)), str(each))
    return found


# --- libraries ---------------------------------------------------------------------------------------------------------------


def library_file(name, folders):
    for suffix in (".a", ".so"):
        for folder in folders:
            path = pathlib.Path(folder) / f"lib{name}{suffix}"
            if path.exists():
                return path
    raise Failed(f"there is no lib{name}.a or lib{name}.so in {', '.join(map(str, folders))}")


def library_folders():
    out = need(["c++", "-print-search-dirs"], 60).out
    line = next(line for line in out.splitlines() if line.startswith("libraries:"))
    return [os.path.normpath(part) for part in line.split("=", 1)[1].split(":") if os.path.isdir(part)]


def soname(path):
    """The name under which a shared library is looked for when a program starts."""
    out = need(["objdump", "-p", path], 60).out
    found = re.search(r"SONAME\s+(\S+)", out)
    return found.group(1) if found else path.name


def needed_by(path):
    """{name: path} of the shared libraries that one needs and no compiler brings."""
    lines = need(["ldd", path], 60).out.splitlines()
    pairs = [line.split("=>") for line in lines if "=>" in line and "not found" not in line]
    return {name.strip(): rest.split()[0] for name, rest in pairs if not WITH_COMPILER.match(name.strip())}


def carry_libraries(names, folder):
    """Copies them; returns {name: file in lib/}."""
    folder.mkdir(parents=True)
    files, folders = {}, library_folders()
    for name in names:
        path = library_file(name, folders)
        if path.suffix == ".a":
            files[name] = path.name
        else:
            files[name] = soname(path)
            for each, where in needed_by(path).items():
                shutil.copy(where, folder / each)
        shutil.copy(path, folder / files[name])
    return files


def versions_needed(folder):
    """The newest version that the carried shared libraries want of each set of symbols, such as GLIBC_2.34."""
    newest = {}
    for path in sorted((pathlib.Path(folder) / "lib").glob("*.so*")):
        for family, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([0-9.]+)", need(["objdump", "-T", path], 60).out):
            newest[family] = max(newest.get(family, ()), tuple(map(int, version.split("."))))
    return [f"{family}_{'.'.join(map(str, version))}" for family, version in sorted(newest.items())]


# --- CMake's files -----------------------------------------------------------------------------------------------------------


def link_line(names, files, at):
    words = [f'"{at}/lib/{files[name]}"' for name in names]
    return " ".join(words + (["pthread", "${CMAKE_DL_LIBS}"] if words else []))


def write_cmake(folder, files):
    folder.mkdir(parents=True)
    for name, (target, libraries, definitions) in PACKAGES.items():
        defined = [each for each in definitions if not files.get(SHARED_ONLY.get(each), ".so").endswith(".a")]
        text = FIND_PACKAGE.format(name=name, target=target, definitions=" ".join(defined),
                                   libraries=link_line(libraries, files, "${CMAKE_CURRENT_LIST_DIR}/.."))
        (folder / f"Find{name}.cmake").write_text(text)
    modules = [MODULE.format(module=module, folder=headers, libraries=link_line(libraries, files, "${_carried}"))
               for module, (libraries, headers) in MODULES.items()]
    (folder / "FindPkgConfig.cmake").write_text(FIND_PKG_CONFIG.replace("@modules@", "\n".join(modules)))


def pack(folder, build):
    """Fills the folder, which must be new or of an earlier call. Returns [(what, files, bytes)]."""
    folder, build = pathlib.Path(folder), pathlib.Path(build).resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / "cmake" / "FindPkgConfig.cmake").exists():
        raise Failed(f"{folder} has other files than those of pack")
    headers = carried_headers(headers_read(build), sources_of(build))
    for part in ("include", "lib", "cmake"):
        shutil.rmtree(folder / part, ignore_errors=True)
    for where, source in with_neighbors(headers).items():
        to = folder / "include" / where
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, to)
    names = [name for _, libraries, _ in PACKAGES.values() for name in libraries]
    names += [name for libraries, _ in MODULES.values() for name in libraries]
    write_cmake(folder / "cmake", carry_libraries(sorted(set(names)), folder / "lib"))
    sizes = []
    for part in ("include", "lib", "cmake"):
        found = [each.stat().st_size for each in (folder / part).rglob("*") if each.is_file()]
        sizes.append((part, len(found), sum(found)))
    return sizes
