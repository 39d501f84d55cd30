"""Pictures: trajectories of keys, and histograms of a field. Needs Matplotlib.

Figures are made without pyplot, so nothing of the caller's changes: no backend, no style, no global list of
figures. Colours are those of Okabe and Ito, which people who see few colours can tell apart; lines differ in
their dashes, too, so that a grey print can be read.
"""
from __future__ import annotations

import functools
import io
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _lazy
from ._described import Described
from ._files import replacing

if TYPE_CHECKING:
    from ._directory import Directory, Epochs

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
ENDINGS = (".png", ".pdf", ".svg")
LINES_NAMED_MAX = 12  # more lines have no legend, and colours in their order
PANELS_MAX = 8
TEXT_MAX = 80  # letters of a label or a title
NAME_MAX = 30  # of a key in a legend
EPOCHS_DRAWN_MAX = 8
BACKGROUND_KEYS = 1500
_STYLE = {
    "font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "legend.fontsize": 8, "lines.linewidth": 1.4,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6, "axes.axisbelow": True, "savefig.dpi": 200, "pdf.fonttype": 42,
    "svg.hashsalt": "swale",
    "axes.formatter.limits": (-4, 5), "axes.formatter.use_mathtext": True,
}
_PLANES = (("x", "y"), ("position[0]", "position[1]"), ("pos[0]", "pos[1]"), ("r[0]", "r[1]"),
           ("x[0]", "x[1]"),
           ("xu", "yu"))
_EXPONENT = re.compile(r"\^(-?\d+)")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MOTION = ("z", "zu", "vx", "vy", "vz", "ux", "uy", "uz", "id", "type")


class Quantity:
    """A number of each record: a field, or an element of an array (``v[0]``).

    Raises ValueError for a field that does not exist; the text names the nearest one.
    """

    def __init__(self, directory: Directory, text: str) -> None:
        self.text = text
        directory._expect_field(text)
        name, bracket, rest = text.partition("[")
        self.field = directory.schema[name]
        self.column = f"[{name}]" if name in ("epoch", "step", "time", "key", "value") else name
        self.unit = _described(directory).unit(name)
        self.element: int | None = None
        if bracket:
            if not rest.endswith("]") or not rest[:-1].isdigit() or int(rest[:-1]) >= self.field.count:
                raise ValueError(f"{text}: {name} has the elements {name}[0] to "
                                 f"{name}[{self.field.count - 1}]")
            self.element = int(rest[:-1])
        elif self.field.count != 1:
            raise ValueError(f"{name} is an array: name an element, {name}[0] to "
                             f"{name}[{self.field.count - 1}]")

    def of(self, table: Any) -> Any:
        """The numbers of a table's rows as float64; NaN where the record lacks the field."""
        np = _lazy.numpy()
        array = table[self.column]
        if self.element is not None and self.field.count != 1:
            array = array[:, self.element]
        if np.ma.isMaskedArray(array):
            return array.astype("f8").filled(np.nan)
        return np.asarray(array, dtype="f8")

    @property
    def label(self) -> str:
        """For an axis: the name, and the unit if it is known."""
        return with_unit(self.text, self.unit)


def _described(directory: Directory) -> Described:
    """What the directory's attributes say: units that the schema does not have."""
    return Described(directory.schema, directory.attributes)


def with_unit(name: str, unit: str) -> str:
    """A name and its unit, for an axis."""
    return plain(f"{name} ({raised(unit)})" if unit else name)


def raised(unit: str) -> str:
    """A unit with its exponents as people write them: m² for m^2."""
    return _EXPONENT.sub(lambda found: found[1].translate(_RAISED), unit)


def plain(text: str, most: int = TEXT_MAX) -> str:
    """Text as Matplotlib draws it as it stands: no formula, no control characters, and no more than has room.
    """
    cut = text if len(text) <= most else text[:most - 1] + "…"
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in cut)
    return shown.replace("$", r"\$")


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Writes a picture; the ending of its name says which kind: .png, .pdf or .svg."""
    matplotlib = _matplotlib()
    ending = expect_ending(path)
    # No date, so that the same picture has the same bytes.
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
    with replacing(path) as temporary, matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(temporary, format=ending[1:], metadata=undated[ending])


def expect_ending(path: str | os.PathLike[str]) -> str:
    """The ending of a picture's name, in small letters; ValueError if it is none of `ENDINGS`."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{os.fspath(path)}: expected a name that ends in {', '.join(ENDINGS[:-1])} or "
                         f"{ENDINGS[-1]}")
    return ending


# ---- Trajectories ----


def trajectories(directory: Directory, keys: Any, *, fields: Iterable[str] | None = None,
                 path: Sequence[str] | str | None = "auto", epochs: Epochs = None,
                 background: bool = True) -> Any:
    """Draws the trajectories of keys; `Directory.plot` describes the arguments."""
    matplotlib = _matplotlib()
    np = _lazy.numpy()
    if not directory.schema:
        raise ValueError(f"{directory.path} was made without a schema: there are no numbers to draw")
    keys = [key.item() if hasattr(key, "item") else key for key in keys]
    keys = list(dict.fromkeys(keys))
    if not keys:
        raise ValueError("no key to draw")
    plane = _plane(directory, path)
    shown = _panels(directory, fields, plane)
    wanted = list(dict.fromkeys(each.column for each in (*plane, *shown)))
    table = directory.get_many(keys, epochs=epochs, columns=["epoch", "step", "time", "key", *wanted])
    missing = [key for key in keys if key not in set(table["key"].tolist())]
    if missing:
        raise KeyError(missing[0])
    times, time_label = _abscissa(np, directory, table)
    rows = {key: np.nonzero(table["key"] == key)[0] for key in keys}
    with matplotlib.rc_context(_STYLE):
        figure, plane_axes, panel_axes = _layout(matplotlib, bool(plane), len(shown))
        styles = _styles(matplotlib, keys)
        handles = []
        for key, style in zip(keys, styles):
            for axes, quantity in zip(panel_axes, shown):
                handle = _line(axes, times[rows[key]], quantity.of(table)[rows[key]], style)
            if plane:
                handle = _path(plane_axes, plane[0].of(table)[rows[key]], plane[1].of(table)[rows[key]],
                               style)
            handles.append(handle)
        if plane:
            _finish_plane(np, directory, plane_axes, plane, table, epochs, background)
        for axes, quantity in zip(panel_axes, shown):
            axes.set_ylabel(quantity.label)
        if panel_axes:
            panel_axes[-1].set_xlabel(time_label)
        _legend(figure, handles, keys)
    return figure


def _plane(directory: Directory, path: Sequence[str] | str | None) -> tuple[Quantity, ...]:
    if path is None:
        return ()
    if path == "auto":
        for pair in _PLANES:
            try:
                return tuple(Quantity(directory, name) for name in pair)
            except ValueError:
                continue
        return ()
    names = path.split(",") if isinstance(path, str) else list(path)
    if len(names) != 2:
        raise ValueError(f"path: expected two fields, as x,y; got {len(names)}")
    return tuple(Quantity(directory, name) for name in names)


def _panels(directory: Directory, fields: Iterable[str] | None,
            plane: tuple[Quantity, ...]) -> list[Quantity]:
    """The fields to draw against time; those that say most if none are named."""
    if fields is not None:
        chosen = [Quantity(directory, name) for name in ([fields] if isinstance(fields, str) else fields)]
        if len(chosen) > PANELS_MAX:
            raise ValueError(f"{len(chosen)} fields: a picture has room for {PANELS_MAX}")
        return chosen
    names = [name if field.count == 1 else f"{name}[{i}]"
             for name, field in directory.schema.items() for i in range(min(field.count, 3))]
    drawn = {quantity.text for quantity in plane}
    left = [name for name in names if name not in drawn]
    telling = [name for name in left if name not in _MOTION and not name.endswith("]")]
    return [Quantity(directory, name) for name in (telling or left)[:3]]


def _abscissa(np: Any, directory: Directory, table: Any) -> tuple[Any, str]:
    """Time, if the program gave times; else its steps, else the numbers of the epochs."""
    times = table["time"]
    if len(times) and np.ptp(times) > 0:
        return times, with_unit("time", _described(directory).unit("time"))
    steps = table["step"]
    if not np.ma.isMaskedArray(steps) or not steps.mask.any():
        return np.asarray(steps), "step"
    return table["epoch"], "epoch"


def _layout(matplotlib: Any, plane: bool, panels: int) -> tuple[Any, Any, list[Any]]:
    """A figure: the path at the left, the panels in a column at its right, or alone."""
    if not plane:
        figure = _figure_class()(figsize=(7.2, 1.2 + 1.9 * panels), layout="constrained")
        return figure, None, list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    figure = _figure_class()(figsize=(9.6 if panels else 5.6, 4.9), layout="constrained")
    if not panels:
        return figure, figure.subplots(), []
    grid = figure.add_gridspec(panels, 2, width_ratios=(1.1, 1))
    left = figure.add_subplot(grid[:, 0])
    right = [figure.add_subplot(grid[0, 1])]
    right += [figure.add_subplot(grid[i, 1], sharex=right[0]) for i in range(1, panels)]
    for axes in right[:-1]:
        axes.tick_params(labelbottom=False)
    return figure, left, right


def _styles(matplotlib: Any, keys: list[Any]) -> list[dict[str, Any]]:
    if len(keys) <= LINES_NAMED_MAX:
        return [{"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}
                for i in range(len(keys))]
    colours = matplotlib.colormaps["viridis"]
    return [{"color": colours(0.92 * i / (len(keys) - 1)), "linestyle": "-", "linewidth": 0.8, "alpha": 0.8}
            for i in range(len(keys))]


def _line(axes: Any, x: Any, y: Any, style: dict[str, Any]) -> Any:
    marker = {"marker": "o", "markersize": 3} if len(x) == 1 else {}
    return axes.plot(x, y, **style, **marker)[0]


def _path(axes: Any, x: Any, y: Any, style: dict[str, Any]) -> Any:
    """A line with an open circle where it begins and a full one where it ends."""
    line = axes.plot(x, y, **style)[0]
    axes.plot(x[:1], y[:1], "o", markersize=4.5, markerfacecolor="white", color=style["color"], zorder=3)
    axes.plot(x[-1:], y[-1:], "o", markersize=4.5, color=style["color"], zorder=3)
    return line


def _finish_plane(np: Any, directory: Directory, axes: Any, plane: tuple[Quantity, ...], table: Any,
                  epochs: Epochs, background: bool) -> None:
    axes.set_xlabel(plane[0].label)
    axes.set_ylabel(plane[1].label)
    axes.autoscale_view()
    limits = [axes.get_xlim(), axes.get_ylim()]
    if plane[0].unit == plane[1].unit:  # a square with room for both
        half = max(high - low for low, high in limits) / 2
        limits = [((low + high) / 2 - half, (low + high) / 2 + half) for low, high in limits]
        axes.set_aspect("equal", adjustable="box")
    told = "○ begin, ● end"
    if background:
        first = int(table["epoch"].min())
        some = directory.sample(BACKGROUND_KEYS, epoch=first)
        others = directory.get_many(some, epochs=first,
                                    columns=list(dict.fromkeys(each.column for each in plane)))
        axes.plot(plane[0].of(others), plane[1].of(others), ".", markersize=1.6, color="#b0b0b0", zorder=0)
        told += f", grey: other keys in epoch {first}"
    axes.set_xlim(limits[0])
    axes.set_ylim(limits[1])
    axes.set_title(told, loc="left", color="#404040")


def _legend(figure: Any, handles: list[Any], keys: list[Any]) -> None:
    if len(keys) <= LINES_NAMED_MAX:
        names = [plain(f"key {key.decode(errors='replace') if isinstance(key, bytes) else key}", NAME_MAX)
                 for key in keys]
        columns = min(len(keys), 5 if max(map(len, names)) < 16 else 3)
        how = {"ncols": columns, "frameon": False, "handlelength": 3}
        if _lazy.load("matplotlib", "a picture").__version_info__ >= (3, 7):
            figure.legend(handles, names, loc="outside upper center", **how)
        else:  # Debian 12's: the space for the lines of names is kept free by hand
            figure.legend(handles, names, loc="upper center", **how)
            inches = 0.15 + 0.22 * -(-len(keys) // columns)
            figure.get_layout_engine().set(rect=(0, 0, 1, 1 - inches / figure.get_figheight()))
    else:
        figure.suptitle(f"{len(keys)} keys, coloured in their order, from dark to light", fontsize=9)


# ---- Histograms ----


def histogram(directory: Directory, field: str, *, epochs: Epochs = -1, bins: int = 100,
              where: str | None = None, log: bool = False) -> Any:
    """Draws how often a field's numbers occur; `Directory.histogram` describes the arguments."""
    matplotlib = _matplotlib()
    quantity = Quantity(directory, field)
    if not 1 <= bins <= 10_000:
        raise ValueError(f"bins is {bins}: expected 1 to 10,000")
    numbers = directory._epochs(epochs) or list(range(len(directory.epochs)))
    if not numbers:
        raise ValueError(f"{directory.path} has no epochs yet")
    if len(numbers) > EPOCHS_DRAWN_MAX:
        raise ValueError(f"{len(numbers)} epochs: a picture has room for {EPOCHS_DRAWN_MAX}; choose some, "
                         f"as epochs=[0, -1]")
    edges = _edges(directory, quantity, numbers, bins, where)
    counted = [_counts(directory, quantity, number, edges, where) for number in numbers]
    with matplotlib.rc_context(_STYLE):
        figure = _figure_class()(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.subplots()
        for i, (number, (counts, _)) in enumerate(zip(numbers, counted)):
            style = {"color": COLOURS[i % len(COLOURS)], "label": _epoch_label(directory, number)}
            if len(numbers) == 1:
                axes.stairs(counts, edges, fill=True, **style)
            else:
                axes.stairs(counts, edges, linestyle=DASHES[i % len(DASHES)], linewidth=1.4, **style)
        if log:
            axes.set_yscale("log")
        axes.set_xlabel(quantity.label)
        axes.set_ylabel(f"records in a bin of {edges[1] - edges[0]:.3g}")
        if len(numbers) > 1:
            axes.legend(frameon=False, handlelength=3)
        axes.set_title(_histogram_title(directory, numbers, counted, where), loc="left", color="#404040")
    return figure


def _edges(directory: Directory, quantity: Quantity, epochs: list[int], bins: int, where: str | None) -> Any:
    np = _lazy.numpy()
    least, most = np.inf, -np.inf
    for batch in directory.stream(epochs=epochs, columns=[quantity.column], where=where):
        numbers = quantity.of(batch)
        numbers = numbers[np.isfinite(numbers)]
        if len(numbers):
            least, most = min(least, numbers.min()), max(most, numbers.max())
    if least > most:
        raise ValueError(f"no record has a finite {quantity.text}" + (f" where {where}" if where else ""))
    if quantity.field.type[0] != "f" and most - least < bins:  # one bin for each integer
        return np.arange(least - 0.5, most + 1)
    if least == most:
        least, most = least - 0.5, most + 0.5
    return np.linspace(least, most, bins + 1)


def _counts(directory: Directory, quantity: Quantity, epoch: int, edges: Any,
            where: str | None) -> tuple[Any, int]:
    """The records in each bin, and how many have no finite number."""
    np = _lazy.numpy()
    counts = np.zeros(len(edges) - 1, dtype="i8")
    left_out = 0
    for batch in directory.stream(epochs=[epoch], columns=[quantity.column], where=where):
        numbers = quantity.of(batch)
        finite = numbers[np.isfinite(numbers)]
        left_out += len(numbers) - len(finite)
        counts += np.histogram(finite, edges)[0]
    return counts, left_out


def _epoch_label(directory: Directory, number: int) -> str:
    epoch = directory.epochs[number]
    if epoch.step is None:
        return f"epoch {number}"
    return plain(f"step {epoch.step}, time {epoch.time:g} {_described(directory).unit('time')}".rstrip())


def _histogram_title(directory: Directory, numbers: list[int], counted: list[tuple[Any, int]],
                     where: str | None) -> str:
    records = sum(int(counts.sum()) for counts, _ in counted)
    left_out = sum(missing for _, missing in counted)
    parts = [f"{records:,} records"]
    if len(numbers) == 1:
        parts.append(_epoch_label(directory, numbers[0]))
    if where:
        parts.append(plain(f"where {where}"))
    if left_out:
        parts.append(f"{left_out:,} left out (NaN, infinite, missing)")
    return "; ".join(parts)


@functools.cache
def _figure_class() -> Any:
    """A Figure that notebooks show: Jupyter does so by itself only for figures of pyplot."""
    def _repr_png_(figure: Any) -> bytes:
        picture = io.BytesIO()
        with _matplotlib().rc_context({**_STYLE, "savefig.dpi": 100}):
            figure.savefig(picture, format="png")
        return picture.getvalue()

    base = _lazy.load("matplotlib.figure", "a picture").Figure
    return type("Figure", (base,), {"_repr_png_": _repr_png_, "__module__": base.__module__})


def _matplotlib() -> Any:
    _lazy.load("matplotlib.figure", "a picture")
    return _lazy.load("matplotlib", "a picture")
