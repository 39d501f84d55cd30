"""What a report shows, as one JSON document: the run, its epochs, the health of its index, some trajectories.

Bounded, however long the run is: neighbouring epochs are put together, and trajectories have some epochs.
"""
from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .. import _lazy
from .._described import Described
from .._errors import CorruptionError, NotFoundError
from .._plots import Quantity, raised

if TYPE_CHECKING:
    from .._directory import Directory

GROUPS_MAX = 500  # of epochs
NUMBERS_MAX = 100_000  # of trajectories, about 8 bytes each
FIELDS_MAX = 12
FIELDS_NAMED_MAX = 100
KEYS_MAX = 1000
KEYS_SAMPLED = 24
LOOKUPS_MAX = 20_000  # a key in an epoch, to try the index
LOOKUP_KEYS_MAX = 256
TEXT_MAX = 100
# Counters of an epoch: of all ranks, of the slowest one, and compared over ranks.
SUMS = ("append.bytes", "append.waits", "network.bytes", "network.credit_waits", "index.records",
        "write.data", "write.index")
TIMES = ("append.wait", "delivery.wait", "sort.time", "index.time", "write.time", "sync.time", "commit.time",
         "epoch.open", "epoch.drain", "epoch.flush")
SPREADS = ("index.records", "sort.time", "epoch.flush")
_KINDS = {".data": "data", ".values": "data", ".pages": "data", ".index": "index", ".source": "index"}


def gather(directory: Directory, keys: Any, fields: Iterable[str] | None,
           progress: Callable[[int, int], None] | None) -> dict[str, Any]:
    """The document."""
    from .. import __version__

    epochs = directory.epochs
    attributes = directory.attributes
    title = attributes.get("title")
    shown = list(directory.schema.values())[:FIELDS_NAMED_MAX]
    return {
        "title": text(title) if isinstance(title, str) else "", "path": text(directory.path, 1000),
        "version": __version__, "key_type": directory.key_type or "of no declared type",
        "records": len(directory), "epochs": len(epochs),
        "fields": [[text(field.name), field.type, field.count, text(raised(field.unit))] for field in shown],
        "fields_left_out": len(directory.schema) - len(shown),
        "files": files(directory.path),
        "costs": costs(directory, progress),
        "index": index_health(directory),
        "trajectories": trajectories(directory, keys, fields),
    }


def text(given: object, most: int = TEXT_MAX) -> str:
    """Text as people see it: no control characters, no change of direction, and no more than has room."""
    shown = str(given)
    cut = shown if len(shown) <= most else shown[:most - 1] + "…"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in cut)


def number(given: Any) -> float | int | None:
    """As JSON has it, with six digits; None for NaN and infinities."""
    value = float(given)
    if not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def files(path: str) -> dict[str, int]:
    """The bytes of the directory's files by what they hold. Symbolic links are not followed."""
    found = {"data": 0, "index": 0, "other": 0, "files": 0}
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                info = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:  # a job is writing
                continue
            if stat.S_ISREG(info.st_mode):
                found["files"] += 1
                found[_KINDS.get(os.path.splitext(name)[1], "other")] += info.st_size
    return found


# ---- Epochs ----


def costs(directory: Directory, progress: Callable[[int, int], None] | None) -> dict[str, Any]:
    """Columns with an entry for each group of epochs; None where nothing was kept."""
    epochs = directory.epochs
    each = max(1, -(-len(epochs) // GROUPS_MAX))
    columns: dict[str, Any] = {
        "each": each, "known": 0, "first": [], "step": [], "time": [], "records": [], "ranks": [],
        "sum": {name: [] for name in SUMS}, "slowest": {name: [] for name in TIMES},
        "rank": {name: [] for name in TIMES}, "spread": {name: [] for name in SPREADS}}
    for begin in range(0, len(epochs), each):
        group = epochs[begin:begin + each]
        told = [found for epoch in group if (found := _told(directory, epoch.epoch))]
        columns["known"] += len(told)
        columns["first"].append(group[0].epoch)
        columns["step"].append(group[0].step)
        columns["time"].append(number(group[0].time))
        columns["records"].append(sum(epoch.records for epoch in group))
        columns["ranks"].append(max((one["ranks"] for one in told), default=None))
        _add_group(columns, [one["stats"] for one in told], columns["ranks"][-1] or 1)
        if progress is not None:
            progress(min(begin + each, len(epochs)), len(epochs))
    return columns


def _told(directory: Directory, epoch: int) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(directory._reader.epoch_stats(epoch))
    except NotFoundError:
        return None
    return found


def _add_group(columns: dict[str, Any], told: list[dict[str, Any]], ranks: int) -> None:
    """Adds the counters of a group's epochs; counters of newer or older versions may be missing."""
    def known(name: str) -> list[dict[str, Any]]:
        return [one[name] for one in told if name in one]

    for name in SUMS:
        columns["sum"][name].append(sum(one["sum"] for one in known(name)) if known(name) else None)
    for name in TIMES:  # in seconds, of the slowest rank of each epoch
        counters = known(name)
        took = number(sum(one["max"] for one in counters) / 1e9) if counters else None
        columns["slowest"][name].append(took)
        slowest = max(counters, key=lambda one: one["max"], default={"max_rank": None})
        columns["rank"][name].append(slowest["max_rank"])
    for name in SPREADS:
        counters = [one for one in known(name) if one["sum"]]
        greatest, total = sum(one["max"] for one in counters), sum(one["sum"] for one in counters)
        columns["spread"][name].append(number(greatest * ranks / total) if total else None)


# ---- The index ----


def index_health(directory: Directory) -> dict[str, Any] | None:
    """What a look-up of some keys, present ones, costs in all epochs. None: there is no record."""
    epochs = directory.epochs
    if not epochs or not len(directory):
        return None
    last = max(epoch.epoch for epoch in epochs if epoch.records)
    n = max(1, min(LOOKUP_KEYS_MAX, LOOKUPS_MAX // len(epochs)))
    uncached = ",".join(filter(None, [directory._options, "imd.cache=0"]))
    with type(directory)(directory.path, options=uncached) as fresh:
        try:
            keys = fresh.sample(n, epoch=last)
            before = fresh.stats()
            found = len(fresh.get_many(keys, columns=["epoch"]))
        except CorruptionError as failure:  # the rest of the report is wanted all the more
            return {"failure": text(failure, 500)}
        after = fresh.stats()

    def spent(name: str) -> int:
        return after[name] - before[name]

    return {"keys": len(keys), "lookups": len(keys) * len(epochs), "found": found,
            "false": spent("read.false_candidates"), "requests": spent("read.requests"),
            "bytes": spent("read.bytes"), "depth": after["read.depth_max"]}


# ---- Trajectories ----


def trajectories(directory: Directory, keys: Any, fields: Iterable[str] | None) -> dict[str, Any] | None:
    """Numbers of keys in epochs: those chosen, else some at random. None: there is no record, or it has no
    fields.
    """
    if not directory.schema or not len(directory):
        return None
    quantities = _quantities(directory, fields)
    try:
        return _trajectories(directory, keys, quantities)
    except CorruptionError as failure:
        return {"failure": text(failure, 500)}


def _trajectories(directory: Directory, keys: Any, quantities: list[Quantity]) -> dict[str, Any]:
    np = _lazy.numpy()
    chosen = _keys(directory, keys)
    epochs = directory.epochs
    most = min(len(epochs), max(2, NUMBERS_MAX // (len(chosen) * len(quantities))))
    taken = sorted({round(i * (len(epochs) - 1) / max(1, most - 1)) for i in range(most)})
    columns = list(dict.fromkeys(["epoch", "key", *(quantity.column for quantity in quantities)]))
    table = directory.get_many(chosen, epochs=taken, columns=columns)
    named = table["key"].tolist()
    missing = [key for key in chosen if key not in set(named)] if keys is not None else []
    if missing:
        raise KeyError(missing[0])
    place = {epoch: i for i, epoch in enumerate(taken)}
    row_of_key = {key: i for i, key in enumerate(chosen)}
    where = ([row_of_key[key] for key in named], [place[epoch] for epoch in table["epoch"].tolist()])
    values = []
    for quantity in quantities:
        plane = np.full((len(chosen), len(taken)), np.nan)
        plane[where] = quantity.of(table)
        values.append([[number(each) for each in row] for row in plane.tolist()])
    described = Described(directory.schema, directory.attributes)
    names = [key.decode(errors="replace") if isinstance(key, bytes) else key for key in chosen]
    return {"keys": [text(name, 60) for name in names], "chosen": keys is not None, "values": values,
            "epochs": taken, "of": len(epochs), "steps": [epochs[epoch].step for epoch in taken],
            "times": [number(epochs[epoch].time) for epoch in taken],
            "time_unit": text(described.unit("time")),
            "fields": [[text(quantity.text), text(raised(quantity.unit))] for quantity in quantities]}


def _keys(directory: Directory, keys: Any) -> list[Any]:
    if keys is None:
        last = max(epoch.epoch for epoch in directory.epochs if epoch.records)
        found = directory.sample(KEYS_SAMPLED, epoch=last)
        return found if isinstance(found, list) else list(found.tolist())
    chosen = list(dict.fromkeys(key.item() if hasattr(key, "item") else key for key in keys))
    if not 1 <= len(chosen) <= KEYS_MAX:
        raise ValueError(f"{len(chosen)} keys: a report shows 1 to {KEYS_MAX:,}")
    return chosen


def _quantities(directory: Directory, fields: Iterable[str] | None) -> list[Quantity]:
    """The position first, as far as it is known, so that the page begins with the path."""
    if fields is not None:
        names = [fields] if isinstance(fields, str) else list(dict.fromkeys(fields))
        if not 1 <= len(names) <= FIELDS_MAX:
            raise ValueError(f"{len(names)} fields: a report shows 1 to {FIELDS_MAX}")
        return [Quantity(directory, name) for name in names]
    schema = directory.schema
    names = [str(component) for component in Described(schema, directory.attributes).position]
    names += [name if field.count == 1 else f"{name}[{i}]"
              for name, field in schema.items() for i in range(min(field.count, 3))]
    return [Quantity(directory, name) for name in list(dict.fromkeys(names))[:FIELDS_MAX]]
