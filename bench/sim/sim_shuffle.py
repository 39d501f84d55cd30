#!/usr/bin/env python3
"""sim_shuffle.py PROGRAMS OUT [--profile full|quick|tiny] [--results DIR]: `make sim-shuffle`: the machines
of the 2018 and 2020 papers, simulated with the shipped code and modelled beyond
(docs/design/shuffle-model.md).

PROGRAMS is build/*/bench. First the papers' method on the model: if it misses a number that the papers print,
nothing of ours is judged. Then the simulated runs, beside what the model says of each; then the figures at
the papers' sizes, from the bytes that the shipped code takes for a record. Writes OUT/sim-shuffle.json,
OUT/past-one-node.csv, .md and, with matplotlib, .png; --results takes copies of the last three. Exit status:
0 if every "must" is met, 1 if one is not, 2 if a constant is wrong or a program failed.
"""
import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import judge  # noqa: E402
import pages  # noqa: E402
import sim_shuffle_page as page  # noqa: E402
from keys import Key  # noqa: E402

METHODS = ("base", "indirect", "lossy")
PROFILES = {
    # second, trinity: nodes of the simulated runs. buffers: bytes of a frame, records a rank. keys: of a rank
    # at full size.
    "full": dict(second=(2, 4, 16, 64), trinity=(2, 8, 32, 128), ranks={"second": 64, "trinity": 32},
                 records=4096, buffers=((1024, 30_000), (4096, 60_000), (32_768, 180_000)), keys=7_812_500,
                 route_keys=1_000_000),
    "quick": dict(second=(2, 4), trinity=(2, 8), ranks={"second": 64, "trinity": 32}, records=4096,
                  buffers=((1024, 10_000), (4096, 20_000)), keys=1_000_000, route_keys=300_000),
    "tiny": dict(second=(2,), trinity=(2,), ranks={"second": 4, "trinity": 4}, records=600,
                 buffers=((1024, 600),), keys=30_000, route_keys=20_000),
}
KEYS = (
    Key("lossy_slowdown_ratio", "write slowdown of base over that of lossy, 4,096 ranks of the 2020 paper's "
        "machine; the paper's "
        "own: 3.3", "", 3.3, 4.0, less_is_better=False),
    Key("lossy_slowdown_ratio_simulated", "the same of the simulated run of most ranks, whose epochs are "
        "short", "", None, None,
        less_is_better=False),
    Key("lossy_slowdown_ratio_papers_base", "the paper's base over our lossy", "", None, None,
        less_is_better=False),
)
# What a rank of each machine writes: 32 billion keys over 4,096 processes; 16 M particles.
MACHINES = {"second": dict(value=56, records=7_812_500, nodes=64, ranks=64, lossy_ranks=4096),
            "trinity": dict(value=40, records=16_000_000, nodes=4096, ranks=32, lossy_ranks=131_072)}
# of a record or a message between nodes: sizes; ranks and length
HEADS = {"base": 2 + 3, "indirect": 2 + 3, "lossy": 3}
FRAME_HEAD = 28 + 1
# Reads of a cold query that wait for one another (docs/design/reader.md, lossy.md): footer, slice, block; the
# value's page; the home's footer, the table's end and a shard before the three.
READS = {"base": (3, 9_500), "indirect": (4, 13_600), "lossy": (6, None)}
# DeltaFS's public sources of 2024 on two cores, nanoseconds of processor time a record: measured by us, not
# by the papers.
DELTAFS_NS = {"indexing alone": 500, "direct": 1_100, "three-hop": 1_800}


class Bench:
    def __init__(self, programs, scratch, parameters):
        self.programs, self.scratch, self.p = programs, scratch, parameters

    def run(self, part, **options):
        return judge.run(self.programs / "sim" / "bench_sim_shuffle", "--part", part, *judge.words(options))

    def say(self, text):
        print(f"  {text}", file=sys.stderr, flush=True)

    # -- the papers' method

    def printed(self, spoil):
        line = self.run("printed", spoil=spoil)
        missed = [f"{value['place']}: {value['what']}: printed {value['printed']:g}, modelled "
                  f"{value['modelled']:.4g}"
                  for value in line["values"] if not value["hit"]]
        if missed:
            raise judge.Failed("the papers' method misses the papers' numbers, so a constant is wrong: "
                               + "; ".join(missed))
        return line

    # -- the shipped code, simulated

    def simulated(self):
        rows = []
        for machine, methods in (("second", METHODS), ("trinity", ("base", "lossy"))):
            for nodes in self.p[machine]:
                for method in methods:
                    ranks = self.p["ranks"][machine]
                    self.say(f"{machine}, {nodes} nodes of {ranks} ranks, {method}")
                    line = self.run("run", machine=machine, nodes=nodes, ranks=ranks, method=method,
                                    records=self.p["records"], value=MACHINES[machine]["value"])
                    model = line.pop("model")
                    rows.append({"machine": machine, "method": method, "nodes": nodes, **line,
                                 "model_s": model["total_s"],
                                 "model_slowdown": model["slowdown"]})
        return rows

    def buffers(self):
        """Fig. 5a: the part of the storage's bandwidth that is reached, with frames of different sizes; 64
        ranks, directly.
        """
        rows = []
        for frame, records in self.p["buffers"]:
            ranks = self.p["ranks"]["trinity"]
            self.say(f"frames of {frame} bytes")
            line = self.run("run", machine="trinity", nodes=2, ranks=ranks, method="base", route="direct",
                            records=records, value=40, frame=frame, **{"share-ppm": 1_000_000})
            papers = self.run("epoch", machine="trinity", papers="base", value=40, frame=frame,
                              route="direct")["rows"][5]
            rows.append({"frame_bytes": frame, "papers_method": papers["plain_s"] / papers["total_s"],
                         "simulated_share": line["plain_s"] / line["total_s"],
                         "model_share": line["model"]["plain_s"] / line["model"]["total_s"]})
        return rows

    # -- what a record takes at full size

    def loads(self, machine):
        """{method: bytes of a record}, of the shipped code with the memory plan of the papers' largest job.
        """
        about = MACHINES[machine]
        shape = dict(nodes=about["nodes"], ranks=about["ranks"], records=self.p["keys"], value=about["value"])
        self.say(f"{machine}: what a record takes")
        data = 8 + about["value"]
        rank = {method: self.run("rank", method=method, **shape) for method in ("base", "indirect")}
        lossy = judge.run(self.programs / "source" / "bench_lossy_directory", "--directory",
                          self.scratch / "lossy", "--keys", self.p["keys"], "--ranks",
                          min(about["lossy_ranks"], self.p["keys"] // 224 * 32), "--value", about["value"])
        stored = {method: line["stored_bytes_per_record"] for method, line in rank.items()}
        stored["lossy"] = sum(lossy[f"{name}_bytes"] for name in ("data", "index", "table")) / self.p["keys"]
        sent = {"base": data + HEADS["base"], "indirect": 20 + HEADS["indirect"],
                "lossy": lossy["stage_bytes_per_key"] + HEADS["lossy"] / lossy["stage_keys_per_message"]}
        frame = rank["base"]["hop_frame_bytes"]
        scale = about["records"] / self.p["keys"]
        tails = {method: scale * self.p["keys"] * line["index_bytes_per_record"] for method,
                 line in rank.items()}
        tails["lossy"] = scale * (lossy["index_bytes"] + lossy["table_bytes"])
        return {method: {"method": method, "data": data, "stored": stored[method],
                         "wire": sent[method] * (1 + FRAME_HEAD / frame),
                         "frame": frame, "memtable": rank[method]["memtable_records"] if method in rank
                         else 0,
                         "early": rank[method]["early_bytes_per_record"] if method in rank else 0,
                         "tail": tails[method], "cold_bytes": lossy["cold_bytes"]} for method in METHODS}

    def epochs(self, machine, load, **more):
        about = MACHINES[machine]
        return self.run("epoch", machine=machine, ranks=about["ranks"], records=about["records"],
                        **{name: round(load[name] * 1000) for name in ("data", "stored", "wire", "early")},
                        **{name: round(load[name]) for name in ("frame", "memtable", "tail")}, **more)["rows"]

    def papers_epochs(self, machine, method, **more):
        about = MACHINES[machine]
        return self.run("epoch", machine=machine, ranks=about["ranks"], records=about["records"],
                        papers=method, value=about["value"], **more)["rows"]

    def formats(self, loads):
        """Fig. 13: slowdown and query of the three formats on 64 nodes of 64 ranks."""
        rows = []
        for method in METHODS:
            ours = self.epochs("second", loads[method])[6]
            papers = self.papers_epochs("second", method)[6]
            reads, cold = READS[method]
            cold = loads[method]["cold_bytes"] if cold is None else cold
            query = self.run("query", machine="second", reads=reads, bytes=round(cold))["s"]
            rows.append({"method": method, "papers_slowdown": papers["slowdown"],
                         "slowdown": ours["slowdown"],
                         "papers_query_ms": page.printed_query_ms(method), "query_ms": query * 1e3,
                         "query_reads": reads,
                         "query_bytes": cold, "stored_bytes": loads[method]["stored"],
                         "wire_bytes": loads[method]["wire"],
                         "storage_s": ours["storage_s"], "wire_s": ours["wire_s"],
                         "thread_s": ours["thread_s"],
                         "total_s": ours["total_s"]})
        return rows

    def scaling(self, loads):
        """Figs. 5d, 12b, 17b: time and slowdown of a timestep on Trinity, 32 to 262,144 ranks."""
        series = {"papers": self.papers_epochs("trinity", "base"),
                  "papers_direct": self.papers_epochs("trinity", "base", route="direct"),
                  "base": self.epochs("trinity", loads["base"]),
                  "base_direct": self.epochs("trinity", loads["base"], route="direct"),
                  "lossy": self.epochs("trinity", loads["lossy"])}
        rows = []
        for number, first in enumerate(series["papers"]):
            row = {"nodes": first["nodes"], "ranks": first["ranks"], "plain_s": first["plain_s"]}
            for name, lines in series.items():
                row.update({f"{name}_s": lines[number]["total_s"],
                            f"{name}_slowdown": lines[number]["slowdown"]})
            row["papers_unshuffled_s"], row["unshuffled_s"] = (series[name][number]["storage_s"]
                                                               for name in ("papers", "base"))
            rows.append(row)
        return rows

    def memory(self):
        self.say("memory plans")
        return [self.run("memory", nodes=nodes, ranks=32) for nodes in (1 << n for n in range(2, 14))]

    def processor(self, machines):
        """Fig. 5b: part of a core that a rank takes while storage is full."""
        rate = machines["trinity"]["storage_bytes_per_s"] / machines["trinity"]["ranks_per_node"] / 48
        shapes = {"indexing alone": (1, 1, "direct"), "direct": (2, 4, "direct"),
                  "three-hop": (2, 4, "three-hop")}
        rows = []
        for name, (nodes, ranks, route) in shapes.items():
            self.say(f"processor time, {name}")
            line = judge.run(self.programs / "net" / "bench_route", "--path", self.scratch / "route",
                             "--nodes", nodes, "--ranks", ranks, "--keys", self.p["route_keys"], "--route",
                             route)
            ours = line["shuffle_cpu_ns_per_record"]
            rows.append({"way": name, "deltafs_ns": DELTAFS_NS[name], "ns": ours,
                         "deltafs_share": DELTAFS_NS[name] * rate * 1e-9,
                         "share": ours * rate * 1e-9})
        return rows

    def queries(self, printed):
        """Figs. 12a, 17a: a trajectory of five timesteps against the scan by all cores."""
        papers = next(v["modelled"] for v in printed["values"] if v["what"] == "query of a trajectory") / 1e3
        ours = self.run("query", machine="trinity", reads=READS["base"][0], bytes=5 * READS["base"][1])["s"]
        rows = []
        for ranks in (1 << n for n in range(5, 18)):
            scan = ranks * 16e6 * 48 * 5 / printed["scan_bytes_per_s"]
            rows.append({"ranks": ranks, "particles": ranks * 16e6, "scan_s": scan,
                         "papers_query_ms": papers * 1e3,
                         "query_ms": ours * 1e3, "papers_speedup": scan / papers, "speedup": scan / ours})
        return rows


def ratio(rows, field="slowdown"):
    slowdowns = {row["method"]: row[field] for row in rows}
    return slowdowns["base"] / slowdowns["lossy"]


def slowdown_ratio(programs, scratch, profile):
    """lossy_slowdown_ratio alone: without the simulated runs, which show how far to trust it."""
    bench = Bench(programs, scratch, PROFILES[profile])
    bench.printed(spoil=0)
    return ratio(bench.formats(bench.loads("second")))


def judge_all(figures):
    most = max(row["ranks"] for row in figures["simulated"] if row["machine"] == "second")
    largest = [row for row in figures["simulated"] if row["machine"] == "second" and row["ranks"] == most]
    formats = {row["method"]: row for row in figures["formats"]}
    values = {"lossy_slowdown_ratio": ratio(figures["formats"]),
              "lossy_slowdown_ratio_simulated": ratio(largest),
              "lossy_slowdown_ratio_papers_base":
              formats["base"]["papers_slowdown"] / formats["lossy"]["slowdown"]}
    return {key.name: judge.judged(key, [(0, values[key.name])], lambda _: None) for key in KEYS}


def measure(arguments, scratch):
    bench = Bench(arguments.programs, scratch, PROFILES[arguments.profile])
    load = os.getloadavg()
    printed = bench.printed(arguments.spoil)
    loads = {machine: bench.loads(machine) for machine in MACHINES}
    figures = {"printed": printed["values"], "simulated": bench.simulated(), "fig5a": bench.buffers(),
               "fig5b": bench.processor(printed["machines"]), "memory": bench.memory(),
               "formats": bench.formats(loads["second"]),
               "scaling": bench.scaling(loads["trinity"]), "queries": bench.queries(printed),
               "loads": [{"machine": machine, **line} for machine, lines in loads.items()
                         for line in lines.values()]}
    result = {"profile": arguments.profile, "load_average": load, "results": judge_all(figures),
              "figures": figures}
    page.write(result, arguments.out)
    if arguments.results:
        arguments.results.mkdir(parents=True, exist_ok=True)
        for kind in ("md", "csv", "png"):
            made = arguments.out / f"past-one-node.{kind}"
            if made.exists():
                shutil.copy(made, arguments.results)
    return result


def options(parser):
    parser.add_argument("--results", type=pathlib.Path, help="the folder that gets the page and the plots")
    parser.add_argument("--spoil", type=int, default=0, help="1: with a wrong constant, which must be "
                        "noticed")


def text(result):
    return "\n".join(pages.judged(result["results"]))


if __name__ == "__main__":
    sys.exit(judge.main(__doc__, "sim-shuffle", PROFILES, measure, text, options))
