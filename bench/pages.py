"""What pages of results are made of: tables in Markdown, and all figures of a page in one CSV."""
import csv


def show(value):
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(rows, columns=None, names=None):
    """names: what to write for some of the strings."""
    columns, names = columns or list(rows[0]), names or {}
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(show(names.get(row[c], row[c]) if isinstance(row[c], str) else row[c])
                                       for c in columns) + " |")
    return "\n".join(lines)


def judged(results):
    """The lines of the table of judged figures."""
    yield "| key | value | unit | must | aim | met |"
    yield "|---|---|---|---|---|---|"
    for name, entry in results.items():
        verdict = {True: "yes", False: "**no**",
                   None: "–"}[entry["met"]] + (", aim too" if entry["aim_met"] else "")
        cells = ["–" if entry[key] is None else show(entry[key]) for key in ("must", "aim")]
        yield f"| `{name}` | {show(entry['value'])} | {entry['unit']} | {cells[0]} | {cells[1]} | {verdict} |"


def write_csv(rows, path):
    """All figures in one file: figure, then the row's fields as name=value."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["figure", "row", "field", "value"])
        for figure, all_rows in rows.items():
            for number, row in enumerate(all_rows):
                for field, value in row.items():
                    writer.writerow([figure, number, field, value if isinstance(value, str)
                                     else f"{value:.6g}"])


def read_csv(path):
    rows = {}
    with open(path, encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            all_rows = rows.setdefault(line["figure"], [])
            while len(all_rows) <= int(line["row"]):
                all_rows.append({})
            try:
                value = float(line["value"])
            except ValueError:
                value = line["value"]
            all_rows[int(line["row"])][line["field"]] = value
    return rows
