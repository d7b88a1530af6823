"""Runs other programs, and stops with what they said where they fail."""
import json
import subprocess
import sys


def note(text):
    print(text, file=sys.stderr, flush=True)


def run(command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, **more)
    if done.returncode != 0:
        sys.exit(f"bench_rivals: {command[0]} failed:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return done


class Failed(Exception):
    """A program of a rival didn't finish; the text says how."""


def run_rival(command, **more):
    """The output of a rival's program. Unlike ours, it may fail: what it would have measured stays empty."""
    done = subprocess.run([str(part) for part in command], capture_output=True, **more)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines()]
        told = next((line for line in lines if "ASSERT" in line or "error" in line.lower()), lines[-1] if lines else "")
        raise Failed(f"{command[0].name} failed ({done.returncode}): {told[:150]}")
    return done


def json_lines(data):
    return [json.loads(line) for line in data.decode(errors="replace").splitlines() if line.startswith("{")]
