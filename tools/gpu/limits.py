"""Programs that may take only so long, and the time that is left of all."""
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

KEPT = 4000  # characters of what a program says, from the end
KILLED_SECONDS = 10
# Of scratch folders, which may be removed when a later call finds them: a name that nobody else gives.
SCRATCH = ".backplane_gpu_check_"


def note(text):
    print(text, file=sys.stderr, flush=True)


class Failed(Exception):
    """A program didn't do what it should; the text says what it said."""


class TooSlow(Failed):
    """It was ended at its limit."""


class Budget:
    """Seconds from now, for everything."""

    def __init__(self, seconds, clock=time.monotonic):
        self.clock, self.end = clock, clock() + seconds

    def left(self):
        return max(0.0, self.end - self.clock())


@dataclasses.dataclass
class Done:
    status: int | None  # None: it doesn't even end when killed
    out: str
    err: str
    seconds: float
    timed_out: bool

    def told(self):
        """The last lines of what it said."""
        return (self.err.strip() or self.out.strip())[-KEPT:]


def run(command, limit, on_line=None, **more):
    """Runs it and all that it starts for at most `limit` seconds; what runs longer is ended, and what it said until then
    counts. `on_line` sees lines of standard output as they come."""
    text_in = more.pop("input", None)
    start = time.monotonic()
    process = subprocess.Popen([str(part) for part in command], text=True, errors="replace", start_new_session=True,
                               stdin=subprocess.PIPE if text_in is not None else subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    lines, errors = [], []

    def read(stream, into, tell):
        with stream:
            for line in stream:
                into.append(line)
                if tell:
                    tell(line.rstrip("\n"))

    def write():
        try:
            process.stdin.write(text_in)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended without reading all; its status says why

    threads = [threading.Thread(target=read, args=(process.stdout, lines, on_line), daemon=True),
               threading.Thread(target=read, args=(process.stderr, errors, None), daemon=True)]
    if text_in is not None:
        threads.append(threading.Thread(target=write, daemon=True))
    for thread in threads:
        thread.start()
    timed_out = False
    try:
        process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        end_group(process)
    for thread in threads:
        thread.join(timeout=5)
    return Done(process.returncode, "".join(lines), "".join(errors), time.monotonic() - start, timed_out)


def end_group(process):
    """Whatever is left of what the process started; nothing where all has ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(timeout=KILLED_SECONDS)
    except subprocess.TimeoutExpired:  # a driver may hold it for good
        note(f"process {process.pid} hasn't ended {KILLED_SECONDS} s after it was killed")


def need(command, limit, **more):
    """As run, for a program that has to succeed."""
    done = run(command, limit, **more)
    name = os.path.basename(str(command[0]))
    if done.timed_out:
        raise TooSlow(f"{name} was ended after {limit:.0f} s: {done.told()[-500:]}")
    if done.status != 0:
        raise Failed(f"{name} ended with status {done.status}: {done.told()}")
    return done
