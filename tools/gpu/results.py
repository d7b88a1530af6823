"""The results of all steps: kept after each part, so that a run that ends early loses nothing and the next one goes on.

A part is the smallest thing that is measured or tried at once, such as "llama-3.1-8b BF16 batch 32" of the step "bench". It is

  {"status": "ok" | "failed" | "slow" | "cut" | "skipped", "seconds": ..., "sources_hash", "reason": text unless ok, and what
   the step found}

`slow`: ended at its own limit. `cut`: ended because no time was left of all; what it found until then stays, and the next run
does it again. So it does a part that isn't there. Nor does one count that comes of other sources: what one table holds has to
be of one program. Such parts are put aside, in a file of their own beside the results.
"""
import hashlib
import json
import os
import pathlib
import time

from limits import Failed, TooSlow, note

VERSION = 1
# A part is started with so many seconds left, and so much of its limit: much for what is worth little when it is cut.
LEAST, SHARE, LARGE_SHARE = 5.0, 0.2, 0.6


class Skip(Exception):
    """The part can't be done here; the text says why."""


class Results:
    def __init__(self, folder, budget, write_report, sources=lambda step, part: ""):
        """`write_report(data)` is called after every part. `sources(step, part)`: a hash of all that the part comes of."""
        self.path = pathlib.Path(folder) / "gpu_check.json"
        self.budget, self.write_report, self.sources = budget, write_report, sources
        self.data = {"version": VERSION, "steps": {}}
        self.missed = []  # parts that no time was left for
        if self.path.exists():
            self.data = json.loads(self.path.read_text())
            if self.data.get("version") != VERSION:
                raise ValueError(f"{self.path} is of version {self.data.get('version')}, not {VERSION}")
            self.put_aside()

    def put_aside(self):
        """Parts of other sources: into a file that is named after what is in it."""
        steps = self.data["steps"]
        others = [(step, name) for step, parts in steps.items() for name, part in parts.items()
                  if part.get("sources_hash") != self.sources(step, name)]
        if not others:
            return
        text = self.path.read_text()
        aside = self.path.with_name(f"gpu_check-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json")
        aside.write_text(text)
        for step, name in others:
            del steps[step][name]
        note(f"{len(others)} parts come of other sources: {aside.name} keeps them, they are done again")

    def forget(self, step, names=None):
        """All its parts, or those of these names."""
        for name in list(self.step(step) if names is None else names):
            self.step(step).pop(name, None)

    def forget_failures(self):
        for step, parts in self.data["steps"].items():
            self.data["steps"][step] = {name: part for name, part in parts.items() if part["status"] not in ("failed", "slow")}

    def step(self, name):
        return self.data["steps"].setdefault(name, {})

    def save(self):
        fresh = self.path.with_suffix(".part")
        fresh.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(fresh, self.path)
        self.write_report(self.data)

    def part(self, step, name, limit, work, again=False, share=SHARE):
        """Does the part unless it is there, and returns it; None where no time is left for all of it. `work(seconds)` gets what
        it may take and returns what it found; it may raise Failed, TooSlow or Skip, whose attribute `found` is kept too."""
        known = self.step(step).get(name)
        if known and known["status"] != "cut" and not again:
            return known
        left = self.budget.left()
        if left < max(LEAST, share * limit):
            self.missed.append(f"{step}: {name}")
            return None
        start, allowed = time.monotonic(), min(limit, left)
        found = self.attempt(work, allowed)
        if found["status"] == "slow" and allowed < limit:  # of its own limit it had only a part
            found["status"] = "cut"
        found.update(seconds=round(time.monotonic() - start, 2), sources_hash=self.sources(step, name))
        said = found.get("reason", "").splitlines()
        note(f"{step}: {name}: {found['status']}, {found['seconds']:.1f} s{': ' + said[0][:150] if said else ''}")
        self.step(step)[name] = found
        if found["status"] == "cut":
            self.missed.append(f"{step}: {name}")
        self.save()
        return None if found["status"] == "cut" else found

    @staticmethod
    def attempt(work, seconds):
        try:
            return {"status": "ok", **(work(seconds) or {})}
        except Skip as skip:
            status, error = "skipped", skip
        except TooSlow as slow:
            status, error = "slow", slow
        except Failed as failed:
            status, error = "failed", failed
        except Exception as other:  # a fault of ours in one part must not lose the others
            status, error = "failed", f"{type(other).__name__}: {other}"
        return {"status": status, "reason": str(error), **getattr(error, "found", {})}
