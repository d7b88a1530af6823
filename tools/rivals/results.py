"""Medians, spreads and ratios of rounds, as rows, as text and as a drawing."""
import statistics

OURS = "#2f7ed8"
THEIRS = ("#b8bec6", "#d9a65a", "#8fb573", "#c98b9b", "#9a8fc0")


def best_setting(rounds, rival, column):
    """(setting, its speeds in the rounds) with the best median, or None where no setting has the column in all rounds."""
    settings = {}
    for each in rounds:
        for setting, speeds in each["rivals"].get(rival, {}).items():
            if column in speeds:
                settings.setdefault(setting, []).append(speeds[column])
    whole = {setting: speeds for setting, speeds in settings.items() if len(speeds) == len(rounds)}
    if not whole:
        return None
    best = max(whole, key=lambda setting: statistics.median(whole[setting]))
    return best, whole[best]


def of_rival(rounds, rival, column, ours):
    found = best_setting(rounds, rival, column)
    if found is None:
        reasons = [each["reasons"].get(rival, {}).get(column) for each in rounds]
        return {"reason": next((reason for reason in reasons if reason), "not measured")}
    setting, theirs = found
    return {"setting": setting, "speed": statistics.median(theirs), "range": [min(theirs), max(theirs)],
            "ratio": statistics.median(ours) / statistics.median(theirs),
            "round_ratios": [a / b for a, b in zip(ours, theirs)]}


def rows_of(rounds):
    """By column: our median with its range, each rival's in its best setting, and the best rival with our ratio to it."""
    rivals = sorted({name for each in rounds for name in (*each["rivals"], *each["reasons"])}, key=_order_of(rounds))
    rows = []
    for column in rounds[0]["ours"]:
        ours = [each["ours"][column] for each in rounds]
        row = {"column": column, "ours": statistics.median(ours), "ours_range": [min(ours), max(ours)],
               "rivals": {rival: of_rival(rounds, rival, column, ours) for rival in rivals}}
        measured = {rival: found for rival, found in row["rivals"].items() if "speed" in found}
        row["best"] = max(measured, key=lambda rival: measured[rival]["speed"]) if measured else None
        row["ratio"] = measured[row["best"]]["ratio"] if measured else None
        rows.append(row)
    return rows


def _order_of(rounds):
    order = list(rounds[0]["rivals"])
    return lambda name: order.index(name) if name in order else len(order)


def table(rows):
    lines = [("", "", "tokens/s", "range", "ratio", "of the rounds", "setting")]
    for row in rows:
        lines.append((row["column"], "backplane", f"{row['ours']:.1f}", "{:.0f}-{:.0f}".format(*row["ours_range"]), "", "", ""))
        for rival, found in row["rivals"].items():
            name = rival + (" *" if rival == row["best"] else "")
            if "speed" not in found:
                lines.append(("", name, "-", "", "", "", found["reason"]))
                continue
            lines.append(("", name, f"{found['speed']:.1f}", "{:.0f}-{:.0f}".format(*found["range"]), f"{found['ratio']:.2f}x",
                          f"{min(found['round_ratios']):.2f}-{max(found['round_ratios']):.2f}", found["setting"]))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = "\n".join("  ".join(cell.ljust(w) if i in (0, 1, 6) else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(line, widths))).rstrip() for line in lines)
    return text + "\n\n* the best rival in the column"


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def svg(rows, title):
    """A bar for each engine in each column, beside its figure; the longest fills the width. At the right, our ratio to the
    best rival. Readable on light and dark pages."""
    names = ["backplane", *rows[0]["rivals"]] if rows else ["backplane"]
    colors = {name: OURS if i == 0 else THEIRS[(i - 1) % len(THEIRS)] for i, name in enumerate(names)}
    left, wide, bar, top = 150, 360, 16, 56
    high = bar * len(names) + 14
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {top + high * len(rows) + 8}" role="img" '
           f'font-family="system-ui, sans-serif" font-size="13" fill="#808890">',
           f'<title>{escape(title)}</title>', f'<text x="8" y="20">{escape(title)}</text>']
    for i, name in enumerate(names):
        at = 8 + i * 712 // max(6, len(names))
        out.append(f'<rect x="{at}" y="32" width="10" height="10" fill="{colors[name]}"/>'
                   f'<text x="{at + 15}" y="42">{escape(name)}</text>')
    for number, row in enumerate(rows):
        y = top + high * number
        found = {"backplane": {"speed": row["ours"], "range": row["ours_range"]}, **row["rivals"]}
        most = max(each.get("speed", 0) for each in found.values())
        out.append(f'<text x="8" y="{y + high / 2 + 2:.0f}">{escape(row["column"])}</text>')
        for i, name in enumerate(names):
            at = y + bar * i + 4
            if "speed" not in found[name]:
                out.append(f'<text x="{left}" y="{at + 11}">-</text>')
                continue
            low, up = (left + wide * value / most for value in found[name]["range"])
            out.append(f'<rect x="{left}" y="{at}" width="{wide * found[name]["speed"] / most:.1f}" height="{bar - 3}" '
                       f'fill="{colors[name]}"/>')
            out.append(f'<path d="M{low:.1f} {at + 6.5}H{min(up, left + wide * 1.1):.1f}" stroke="#808890"/>')
            out.append(f'<text x="{left + wide * 1.1 + 6:.0f}" y="{at + 11}">{found[name]["speed"]:.0f} tokens/s</text>')
        if row["ratio"] is not None:
            out.append(f'<text x="712" y="{y + high / 2 + 2:.0f}" text-anchor="end" font-weight="bold">'
                       f'{row["ratio"]:.1f}x</text>')
    return "\n".join(out + ["</svg>", ""])
