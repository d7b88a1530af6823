"""The steps `conform`, which tries all that the ABI asks for, and `sanitize`, which does so under compute-sanitizer."""
import json
import pathlib
import re
import shutil
import tempfile

from limits import SCRATCH, Failed, TooSlow, run
from results import LARGE_SHARE
from step_build import environment, nvcc

CONFORM_SECONDS = 240
# By the name of a step, whose parts are all in "sanitize": seconds of each tool.
TOOLS = {"sanitize": {"memcheck": 240, "racecheck": 240}, "sanitize_rest": {"initcheck": 120, "synccheck": 120}}
# Of the conformance suite: each kind of kernel, with few cases of each, since a sanitizer makes kernels some ten to a hundred
# times slower. The patterns are those of `backplane conform --filter`.
SANITIZED = ("LINEAR/BF16/*/bias", "LINEAR/Q4_0/*T16", "LINEAR/Q4_K/*T1_", "LINEAR_ACT/Q4_K/*", "HEAD_ARGMAX/BF16/*",
             "ATTN_DECODE/own/BF16/S16", "ATTN_PREFILL/own/BF16/S16", "KV_WRITE/own/BF16/S16", "QKV_ROPE_WRITE/*BF16",
             "NORM/rms", "TOPK", "GATHER_ROWS", "graphs")
ERROR_STATUS = 86  # of a sanitizer that found something; none of ours
LINE = re.compile(r"^(passed|FAILED|suspect|skipped)\s+(\S+?):?(?:\s|$)(.*)")
SUMMARY = re.compile(r"=+ (?:ERROR|RACECHECK|SYNCCHECK|INITCHECK) SUMMARY: (.*)")


class Told:
    """The verdicts as conform tells them: what is known when it doesn't come to its end."""

    def __init__(self):
        self.counts, self.failures, self.pending = {"passed": 0, "failed": 0, "suspect": 0, "skipped": 0}, [], None

    def line(self, text):
        found = LINE.match(text)
        if found:
            verdict = found.group(1).lower()
            self.counts[verdict] += 1
            if verdict == "suspect":
                self.counts["passed"] += 1  # as the JSON has it
            self.pending = found.group(2) if verdict == "failed" else None
            if self.pending:
                self.failures.append({"name": self.pending, "reason": ""})
        elif self.pending and text.strip():
            self.failures[-1]["reason"], self.pending = text.strip(), None


def summary_of(report):
    """Of conform's JSON: counts, by op, and what failed."""
    ops = {}
    for case in report["cases"]:
        counts = ops.setdefault(case["op"], {"passed": 0, "failed": 0, "skipped": 0})
        counts[case["verdict"]] += 1
    failures = [{"name": case["name"], "reason": case.get("reason", ""), "replay": case.get("replay", "")}
                for case in report["cases"] if case["verdict"] == "failed"]
    finite = [case["error"] for case in report["cases"] if isinstance(case["error"], (int, float))]
    return {**{key: report[key] for key in ("passed", "failed", "suspect", "skipped")}, "ops": ops,
            "largest_error": max(finite, default=None), "failures": failures,
            "suspects": [case["name"] for case in report["cases"] if case.get("suspect")]}


def conform(options, device, seconds):
    told = Told()
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix=SCRATCH) as folder:
        path = f"{folder}/conform.json"
        command = [options.program, "conform", device, *options.plugins(), "-v", "--json", path]
        done = run(command, seconds, on_line=told.line, env=environment())
        try:
            with open(path) as file:
                found = summary_of(json.load(file))
        except (OSError, ValueError):
            found = {**told.counts, "failures": told.failures, "partial": True}
    error = None
    if done.timed_out:
        error = TooSlow(f"ended after {seconds:.0f} s")
    elif found.get("partial"):
        error = Failed(f"conform ended with status {done.status}: {done.told()}")
    elif found["failed"] or done.status != 0:
        error = Failed(f"{found['failed']} cases failed")
    if error:
        error.found = found
        raise error
    return found


def sanitizer():
    """compute-sanitizer's path, or None. A toolkit has it in bin/, or in a folder of its own."""
    toolkits = [pathlib.Path(nvcc()).resolve().parent.parent] if nvcc() else []
    folders = [str(toolkit / name) for toolkit in [*toolkits, pathlib.Path("/usr/local/cuda")]
               for name in ("bin", "compute-sanitizer")]
    beside = [str(pathlib.Path(nvcc()).parent)] if nvcc() else []
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=":".join(beside + folders))


def sanitized(options, program, tool, seconds):
    """Each filter in a process of its own, so that what one finds doesn't hide what is in others."""
    found = {"filters": {}}
    left = seconds
    for number, pattern in enumerate(options.sanitized):
        share = left / (len(options.sanitized) - number)
        command = [program, "--tool", tool, "--error-exitcode", ERROR_STATUS, "--print-limit", 10, options.program, "conform",
                   f"{options.device}:0-bf16", *options.plugins(), "--filter", pattern]
        done = run(command, share, env=environment())
        left -= done.seconds
        found["filters"][pattern] = verdict_of(done)
    if all(each.get("none") for each in found["filters"].values()):
        error = Failed("no case ran to its end: that proves nothing")
        error.found = found
        raise error
    problems = {pattern: each["reason"] for pattern, each in found["filters"].items() if "reason" in each}
    if problems:
        faulty = any(not each.get("slow") for each in found["filters"].values() if "reason" in each)
        error = (Failed if faulty else TooSlow)("; ".join(f"{pattern}: {text}" for pattern, text in problems.items()))
        error.found = found
        raise error
    return found


def errors_of(summary):
    """From "3 errors", or racecheck's "2 hazards displayed (1 error, 1 warning)"; None where there is no number."""
    found = re.match(r"(\d+) (?:errors?|hazards?)", summary or "")
    return int(found.group(1)) if found else None


def verdict_of(done):
    text = done.out + done.err
    summaries = SUMMARY.findall(text)
    summary = summaries[-1].strip() if summaries else None
    executed = re.search(r"^(\d+) passed, (\d+) failed, (\d+) skipped", text, re.M)
    passed, failed, skipped = (int(count) for count in executed.groups()) if executed else (0, 0, 0)
    verdict = {"status": done.status, "errors": errors_of(summary), "summary": summary, "seconds": round(done.seconds, 1),
               "passed": passed, "failed": failed}
    if done.timed_out:
        verdict.update(slow=True, reason="ended at its limit")
    elif done.status == ERROR_STATUS or verdict["errors"]:
        reports = [line for line in text.splitlines() if line.startswith("=====")]
        verdict.update(reason=summary or "it found errors", reports=reports[:40])
    elif passed + failed == 0 and skipped > 0 and summary is not None:
        verdict["none"] = True  # the device has no such op
    elif executed and passed + failed == 0:
        verdict["reason"] = "no case has such a name"
    elif done.status != 0 or summary is None:
        verdict["reason"] = f"ended with status {done.status}: {done.told()[-300:]}"
    return verdict


def step_conform(options, results):
    for device in options.devices():
        results.part("conform", device, CONFORM_SECONDS, lambda seconds, device=device: conform(options, device, seconds),
                     share=LARGE_SHARE)


def sanitize(options, results, tools):
    program = sanitizer()
    for tool, limit in tools.items():
        if program:
            results.part("sanitize", tool, limit, lambda seconds, tool=tool: sanitized(options, program, tool, seconds))
        else:
            results.missed.append(f"sanitize: {tool}: there is no compute-sanitizer on PATH, beside nvcc or in /usr/local/cuda")


def step_sanitize(options, results):
    sanitize(options, results, TOOLS["sanitize"])


def step_sanitize_rest(options, results):
    sanitize(options, results, TOOLS["sanitize_rest"])
