#!/usr/bin/env python3
"""Runs a section of the acceptance script: accept.py SHARED PROGRAM ARGUMENTS... Exits with 77, "skipped", when there is no
such script or data, or when the section needs a model that isn't in the cache (tests download nothing)."""
import inspect
import os
import pathlib
import runpy
import sys

SKIPPED = 77
MODEL = "backplane/models/SmolLM2-135M-Instruct.Q4_1.gguf"

shared, program, arguments = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
script = shared / "accept/accept.py"
if not script.exists() or not (shared / "data").exists():
    print(f"skipped: there is no {script} with its data")
    sys.exit(SKIPPED)
if "smollm2" in arguments:
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    if not (pathlib.Path(cache) / MODEL).exists():
        print("skipped: smollm2-135m-instruct is not pulled")
        sys.exit(SKIPPED)

# The script is written for Python 3.13, whose Path.read_text takes `newline`.
if "newline" not in inspect.signature(pathlib.Path.read_text).parameters:
    def read_text(self, encoding=None, errors=None, newline=None):
        with open(self, encoding=encoding, errors=errors, newline=newline) as stream:
            return stream.read()
    pathlib.Path.read_text = read_text

os.environ["SOURCE_DATE_EPOCH"] = "1721952000"  # the day its templates' goldens were made on
sys.argv = [str(script), "--backplane", program, *arguments]
runpy.run_path(str(script), run_name="__main__")
