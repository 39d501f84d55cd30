"""tables: every store that a run of bench-meta has measured, for the terminal and for the page."""
import statistics


def of_index(lines):
    """Every store that was measured: CPU and wall nanoseconds an operation, bytes an entry."""
    rows = {}
    for entry in lines:
        parts = entry["name"].split(".")
        if len(parts) == 3 and parts[0] in ("load", "warm", "cold"):
            what, store, key = parts
            row = rows.setdefault((key, store), {})
            row.setdefault(what, []).append((entry["line"]["cpu_ns"], entry["line"]["wall_ns"]))
            if "bytes_per_entry" in entry["line"]:
                row.setdefault("bytes", []).append((entry["line"]["bytes_per_entry"], 0))
    out = []
    for (key, store), row in sorted(rows.items()):
        cells = []
        for what in ("load", "warm", "cold"):
            pairs = row.get(what)
            cells.append("" if not pairs else "%.1f / %.1f" % tuple(statistics.median(p[i] for p in pairs)
                                                                     for i in (0, 1)))
        bytes_ = row.get("bytes")
        cells.append("" if not bytes_ else "%.4g" % statistics.median(b for b, _ in bytes_))
        out.append([key, store, *cells])
    return out


def of_clients(lines):
    """Every store behind requests: CPU nanoseconds of client and server a put and a get, and of the server
    alone.
    """
    names = ("put_cpu_ns", "put_server_cpu_ns", "get_cpu_ns", "get_server_cpu_ns")
    rows = {}
    for entry in lines:
        parts = entry["name"].split(".")
        if parts[0] == "client":
            rows.setdefault((parts[2], parts[1]), []).append([entry["line"][name] for name in names])
    return [[key, store, *("%.1f" % statistics.median(column) for column in zip(*found))]
            for (key, store), found in sorted(rows.items())]


def markdown(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))
