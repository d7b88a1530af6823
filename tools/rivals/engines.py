"""Rivals that are Python packages: each is measured in a process of its own, by engine_worker.py."""
import json
import pathlib
import subprocess

from programs import note

WORKER = pathlib.Path(__file__).resolve().parent / "engine_worker.py"
NAMES = ("transformers", "ctranslate2", "openvino")


class Engine:
    def __init__(self, name, python, folder, seconds):
        self.name, self.python, self.folder, self.seconds = name, python, folder, seconds

    def call(self, *arguments):
        """The JSON line that the worker writes last, or {"error": text}."""
        command = [self.python, WORKER, self.name, *arguments]
        done = subprocess.run([str(part) for part in command], capture_output=True)
        lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("{")]
        if done.returncode == 0 and lines:
            return json.loads(lines[-1])
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return {"error": said[-1][:200] if said else f"ended with status {done.returncode}"}

    def prepared(self, options):
        """The folder with the weights of the model, dequantized and saved once for each file."""
        model = pathlib.Path(options.model).resolve()
        status = model.stat()
        return self.folder / f"{model.stem}-{status.st_size}-{status.st_mtime_ns}"

    def round(self, options):
        """{setting: {column: tokens/s}}, and why columns are missing: {column: text}."""
        if options.kv_type:
            return {}, dict.fromkeys(options.columns(), "takes no --kv-type")
        weights = self.prepared(options)
        prepared = self.call("prepare", pathlib.Path(options.model).resolve(), weights)
        if "error" in prepared:
            return {}, dict.fromkeys(options.columns(), prepared["error"])
        settings, reasons = {}, {}
        for threads in options.rival_threads:
            job = {"model": str(pathlib.Path(options.model).resolve()), "weights": str(weights), "threads": threads,
                   "repeat": options.repeat, "seconds": self.seconds, "cases": options.cases()}
            answer = self.call("measure", json.dumps(job))
            if "error" in answer:
                reasons.update(dict.fromkeys(options.columns(), answer["error"]))
                continue
            reasons.update(answer["reasons"])
            settings[f"{answer['setting']} -t {threads}"] = answer["speeds"]
        for column, reason in reasons.items():
            note(f"  {self.name}, {column}: {reason}")
        return settings, reasons
