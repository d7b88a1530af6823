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


def json_lines(data):
    return [json.loads(line) for line in data.decode(errors="replace").splitlines() if line.startswith("{")]
