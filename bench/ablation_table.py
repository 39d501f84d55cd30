"""A part's CSV as a table whose cases are asked for by their cells, and claims about it."""
import csv
import statistics
from dataclasses import dataclass


class Refused(Exception):
    """A CSV that does not have what the report needs."""


def typed(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


class Table:
    def __init__(self, path):
        self.name = path.name
        with open(path, encoding="utf-8", newline="") as file:
            self.rows = [{key: typed(value) for key, value in row.items()} for row in csv.DictReader(file)]
        if not self.rows:
            raise Refused(f"{self.name}: no rows")

    def select(self, **where):
        return [row for row in self.rows if all(self.cell(row, key) == value for key, value in where.items())]

    def cell(self, row, column):
        if column not in row:
            raise Refused(f"{self.name}: no column '{column}'")
        return row[column]

    def knows(self, column):
        return column in self.rows[0]

    def samples(self, column, **where):
        found = [self.cell(row, column) for row in self.select(**where)]
        if not found or any(isinstance(value, str) for value in found):
            raise Refused(f"{self.name}: no '{column}' for {where}")
        return found

    def median(self, column, **where):
        return statistics.median(self.samples(column, **where))

    def cases(self, column, **where):
        """The distinct cells of a column, in the order of the file."""
        return list(dict.fromkeys(self.cell(row, column) for row in self.select(**where)))

    def line(self, x, y, **where):
        """x and median y of the rows, for a plot."""
        xs = sorted(self.cases(x, **where))
        return xs, [self.median(y, **{x: at}, **where) for at in xs]

    def has(self, **where):
        return bool(self.select(**where))


@dataclass(frozen=True)
class Claim:
    """What a paper says and where, what we measured, whether the shape agrees, and why (or why not)."""

    place: str
    paper: str
    ours: str
    agrees: bool
    because: str = ""  # if it agrees
    otherwise: str = ""  # if not

    @property
    def why(self):
        return self.because if self.agrees else self.otherwise or "not what was predicted: look at the CSV"


def time_text(us):
    if us >= 1e6:
        return f"{us / 1e6:.3g} s"
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} µs"


def bytes_text(count):
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def percent(share):
    return f"{share * 100:.3g} %"
