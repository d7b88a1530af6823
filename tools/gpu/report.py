"""The Markdown report of the results."""
import targets
from step_conform import TOOLS


def table(header, rows):
    """Columns of numbers are aligned to the right."""
    if not rows:
        return ""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    right = [all(cell[:1] in "-0123456789" for cell in column) for column in zip(*cells)]
    lines = ["| " + " | ".join(header) + " |", "|" + "".join(" ---: |" if each else " --- |" for each in right)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in cells]) + "\n"


def percent(part):
    return "-" if part is None else f"{100 * part:.1f} %"


def number(value, digits=4):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def reason(part):
    lines = part.get("reason", "").strip().splitlines()
    return lines[0][:200] if lines else ""


def status(part):
    return part["status"] + (f": {reason(part)}" if part["status"] != "ok" else "")


def machine(data):
    facts = data["steps"].get("machine", {}).get("machine", {})
    ours = ("status", "seconds", "reason")
    shown = [(key.replace("_", " "), value) for key, value in facts.items() if key not in ours and value]
    roofs = targets.bench_part(data, "roofs")
    for key, name, unit in (("copy_bytes_per_s", "copy", "GB/s"), ("read_bytes_per_s", "read", "GB/s"),
                            ("matmul_flops_per_s", "bf16 matmul", "TFLOP/s")):
        if roofs.get(key):
            shown.append((f"roof: {name}", f"{roofs[key] / (1e9 if unit == 'GB/s' else 1e12):,.0f} {unit}"))
    versions = [part["versions"] for part in data["steps"].get("bench", {}).values() if "versions" in part]
    if versions:
        shown.append(("beside it", ", ".join(f"{name} {version}" for name, version in versions[0].items())))
    if roofs.get("status", "ok") != "ok":
        shown.append(("roofs", status(roofs)))
    elif roofs.get("matmul_reason"):
        shown.append(("roof: bf16 matmul", f"not measured: {roofs['matmul_reason']}"))
    return "## Machine\n\n" + table(("", "value"), shown)


def build(data):
    parts = data["steps"].get("build", {})
    lines = [f"- {name}: {status(part)}" for name, part in parts.items()]
    for part in parts.values():
        if part.get("build_s") is not None:
            lines.append(f"- configured in {part['configure_s']} s, built in {part['build_s']} s for {part['architectures']}, "
                         f"{len(part['warnings'])} warnings")
    return "## Build\n\n" + "\n".join(lines) + "\n" if parts else ""


def conform(data):
    parts = data["steps"].get("conform", {})
    rows = [(device, part.get("passed", "-"), part.get("failed", "-"), part.get("suspect", "-"), part.get("skipped", "-"),
             number(part.get("largest_error"), 3), status(part)) for device, part in parts.items()]
    out = "## Conformance\n\n" + table(("device", "passed", "failed", "suspect", "skipped", "largest E", "status"), rows)
    for device, part in parts.items():
        for failure in part.get("failures", [])[:30]:
            out += f"\n- {device} {failure['name']}: {failure['reason']}"
    return out + ("\n" if parts else "")


def tokens(data):
    rows, notes = [], []
    for name, part in data["steps"].get("tokens", {}).items():
        prompt = part.get("as_prompt", {})
        both = part.get("first_difference", []) + prompt.get("differences", [])
        rows.append((name, f"{part.get('same', '-')} of {part.get('tokens', '-')}",
                     f"{prompt.get('same', '-')} of {prompt.get('tokens', '-')}",
                     number(max((each["margin"] for each in both), default=0.0), 3), number(part.get("tolerance"), 3),
                     number(part.get("largest_error"), 3), len(part.get("faults", [])), status(part)))
        for each in part.get("first_difference", []):
            notes.append(f"- {name}, token {each['position']}: {each['got']} instead of {each['expected']}, "
                         f"margin {'more than ' if each['more'] else ''}{each['margin']:.3g}")
    header = ("model and device", "greedy, same until", "as prompt, same", "largest margin", "tolerance", "largest error",
              "faults", "status")
    out = "## Tokens against cpu:f32\n\nA differing token is a fault where the reference prefers its own by more than the " \
          "tolerance (logits).\n\n" + table(header, rows)
    return out + ("\nFirst differences:\n\n" + "\n".join(notes) + "\n" if notes else "") if rows else ""


def sanitize(data):
    parts = data["steps"].get("sanitize", {})
    rows = []
    for tool in (tool for tools in TOOLS.values() for tool in tools):
        for pattern, each in parts.get(tool, {}).get("filters", {}).items():
            ran = "no such op, skipped" if each.get("none") else each["passed"]
            rows.append((f"{tool} `{pattern}`", ran, each["failed"], number(each["errors"]), each.get("reason", "ok")[:150]))
        if tool in parts and "filters" not in parts[tool]:
            rows.append((tool, "-", "-", "-", status(parts[tool])))
    return "## compute-sanitizer\n\n" + table(("tool and cases", "passed", "failed", "errors", "status"), rows) if rows else ""


def case_name(row):
    if row["kind"] == "prefill":
        return f"prompt of {row['tokens']}"
    return f"batch {row['batch']}, depth {row['depth']}{' (attention)' if row['attention'] else ''}"


def bench(data):
    rows = []
    for row in targets.rows(data):
        peer = row["peer"]
        rows.append((f"{row['shape']} {row['type']}, {case_name(row)}", number(row["tokens_per_s"]), percent(row.get("spread")),
                     percent(row["of_copy"]), percent(row["of_matmul"]), number(peer[0]) if peer else "-",
                     f"{row['ratio']:.2f}x" if peer else "-"))
    header = ("case", "tokens/s", "spread", "of copy", "of matmul", "transformers bf16", "ratio")
    out = "## Speed\n\nBytes and operations are the least that a step needs, by formula, over the roofs of this card in this " \
          "run. transformers: the better of a growing and a fixed cache.\n\n" + table(header, rows) if rows else ""
    reasons = [f"- {name}: {status(part)}" for name, part in data["steps"].get("bench", {}).items() if part["status"] != "ok"]
    for name, part in data["steps"].get("bench", {}).items():
        for case, each in (part.get("cases", {}).items() if isinstance(part.get("cases"), dict) else ()):
            reasons += [f"- {name}, {case}, {setting}: {told['reason']}" for setting, told in each["settings"].items()
                        if "reason" in told]
    if reasons:
        out += ("" if rows else "## Speed\n") + "\nNot measured:\n\n" + "\n".join(reasons) + "\n"
    notes = said(data)
    return out + ("\nBeside the figures:\n\n" + "\n".join(notes) + "\n" if notes else "")


def said(data):
    """What may explain bad figures: what the program said, and steps that weren't launched as they were recorded before."""
    notes = []
    for name, part in data["steps"].get("bench", {}).items():
        notes += [f"- {name}: {line}" for line in part.get("said", []) if line.strip()]
        for case in part["cases"] if isinstance(part.get("cases"), list) else ():
            steps = case["tokens"] * len(case.get("runs", []))
            launched = case.get("steps_launched", steps)
            if case["kind"] == "decode" and (launched < steps or case.get("steps_recorded")):
                notes.append(f"- {name}: {launched} of {steps} steps launched from recordings, "
                             f"{case.get('steps_recorded')} recorded meanwhile")
    return notes


def attention(data):
    seen = targets.attention(data, targets.rows(data))
    if not seen:
        return ""
    shallow, deep = seen["depths"]
    return (f"Attention of {seen['shape']}, batch {seen['batch']}, from depth {shallow} to {deep} "
            f"({seen['kv_bytes'] / 1e6:,.0f} MB of KV): {seen['bytes_per_s'] / 1e9:,.1f} GB/s, "
            f"{percent(seen['of_copy'])} of copy bandwidth.\n")


def kernels(data):
    seen = {}
    for name, part in data["steps"].get("bench", {}).items():
        for kernel in part.get("kernels", []):
            if kernel.startswith(("LINEAR", "ATTN", "QKV", "GATEUP", "HEAD")):
                seen.setdefault(kernel, []).append(name)
    rows = [(kernel, len(names), names[0]) for kernel, names in sorted(seen.items())]
    return "## Kernels that ran\n\n" + table(("op, shape: kernel", "parts", "such as"), rows) if rows else ""


def verdicts(data):
    rows = []
    for each in targets.targets(data):
        part = each["wanted"] < 1
        rows.append((each["target"], percent(each["wanted"]) if part else number(each["wanted"]),
                     percent(each["got"]) if part else number(each["got"]), each["verdict"], each["case"]))
    return "## Targets\n\n" + table(("target", "wanted", "measured", "verdict", "case"), rows)


def text(data):
    parts = [machine(data), build(data), conform(data), tokens(data), sanitize(data)]
    if data["steps"].get("bench"):
        parts += [bench(data), attention(data), kernels(data), verdicts(data)]
    if data.get("not_done"):
        parts.append("## Not done\n\n" + "\n".join(f"- {each}" for each in data["not_done"]) + "\n")
    return "# GPU check\n\n" + "\n".join(part for part in parts if part)
