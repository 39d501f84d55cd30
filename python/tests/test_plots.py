"""Pictures: what is drawn is what the directory has."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import EPOCHS, RECORDS

import swale
from swale import _plots


def lines_of(axes) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_xydata() for line in axes.get_lines()}


def test_a_panel_has_the_trajectory(run: str) -> None:
    with swale.open(run) as d:
        figure = d.plot([7, 8], fields=["x", "v[2]"])
        first, second = figure.axes
        assert first.get_ylabel() == "x (m)" and second.get_ylabel() == "v[2]"
        assert second.get_xlabel() == "time"
        for key, line in zip((7, 8), first.get_lines()):
            assert line.get_xdata().tolist() == [epoch.time for epoch in d.epochs]
            assert line.get_ydata().tolist() == d[key]["x"].tolist()
        assert second.get_lines()[1].get_ydata().tolist() == d[8]["v"][:, 2].tolist()
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["key 7", "key 8"]


def test_a_path_begins_and_ends_where_the_key_was(run: str) -> None:
    with swale.open(run) as d:
        axes = d.plot([7], path=("x", "v[0]"), epochs=slice(1, 3), background=False).axes[0]
        line, begin, end = axes.get_lines()
        assert line.get_xydata().tolist() == [[1007.0, 21.0], [2007.0, 21.0]]
        assert begin.get_xdata().tolist() == [1007.0] and end.get_xdata().tolist() == [2007.0]


def test_many_keys_have_colours_in_their_order(run: str) -> None:
    with swale.open(run) as d:
        figure = d.plot(range(50), fields="x")
        colours = [line.get_color() for line in figure.axes[0].get_lines()]
        assert len(set(colours)) == 50 and not figure.legends and "50 keys" in figure.get_suptitle()


def test_colours_differ_in_print_too() -> None:
    """Neighbours in the palette differ in dashes, so that a grey copy tells them apart."""
    matplotlib = _plots._matplotlib()
    styles = _plots._styles(matplotlib, list(range(_plots.LINES_NAMED_MAX)))
    assert len({(style["color"], str(style["linestyle"])) for style in styles}) == len(styles)
    assert all(a["linestyle"] != b["linestyle"] for a, b in zip(styles, styles[1:]))


def test_a_histogram_counts_every_record(run: str) -> None:
    with swale.open(run) as d:
        figure = d.histogram("x", epochs=[0, 2], bins=10)
        axes = figure.axes[0]
        for epoch, steps in zip((0, 2), axes.patches):
            counts, edges, _ = steps.get_data()
            x = d.scan(epochs=epoch)["x"]
            assert counts.tolist() == np.histogram(x[np.isfinite(x)], edges)[0].tolist()
        assert axes.get_title(loc="left").startswith(f"{2 * (RECORDS - 1):,} records; 2 left out")
        assert axes.get_xlabel() == "x (m)"
        # v[0] of particle 3 is infinite.
        assert "1 left out" in d.histogram("v[0]").axes[0].get_title(loc="left")
        # Integers that are few have a bin each.
        counts, edges, _ = d.histogram("id", where="id < 5").axes[0].patches[0].get_data()
        assert counts.tolist() == [1] * 5 and edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5]
        assert d.histogram("x", where="id == 9").axes[0].patches[0].get_data().values.sum() == 1


@pytest.mark.parametrize(("ask", "says"), [
    (lambda d: d.plot([7], fields=["y"]), "did you mean 'x'"),
    (lambda d: d.plot([7], fields=["v"]), r"v\[0\] to v\[2\]"),
    (lambda d: d.plot([7], fields=["v[3]"]), r"v\[0\] to v\[2\]"),
    (lambda d: d.plot([]), "no key"),
    (lambda d: d.plot([7], fields=["x"] * 9), "room for 8"),
    (lambda d: d.plot([7], path="x"), "two fields"),
    (lambda d: d.histogram("x", bins=0), "1 to 10,000"),
    (lambda d: d.histogram("x", where="x < -5"), "no record"),
])
def test_mistakes_say_what_was_meant(run: str, ask, says: str) -> None:
    with swale.open(run) as d, pytest.raises(ValueError, match=says):
        ask(d)


def test_missing_keys_and_schemas(run: str, texts: str) -> None:
    with swale.open(run) as d, pytest.raises(KeyError, match="500"):
        d.plot([7, 500])
    with swale.open(texts) as d, pytest.raises(ValueError, match="without a schema"):
        d.plot(["b"])


def test_strange_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    dtype = np.dtype([("a_b", "f8"), ("c", "f8")])
    with swale.create(tmp_path / "d", schema=dtype, key="text", units={"a_b": "$x$^2"}) as out:
        for epoch in range(2):
            out.append("_<$x$>", (1.0 + epoch, 2.0))
            out.epoch_end(epoch)
    with swale.open(tmp_path / "d") as d:
        figure = d.plot(["_<$x$>"])
        _plots.save(figure, tmp_path / "a.svg")
        assert figure.axes[0].get_ylabel() == r"a_b (\$x\$^2)".replace("^2", "²")
        assert figure.axes[-1].get_xlabel() == "step"  # all times are equal
    assert EPOCHS and (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")


def test_a_picture_that_fails_leaves_the_old_one(run: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"old")
    with swale.open(run) as d:
        figure = d.plot([7])
    figure.savefig = lambda *_, **__: 1 / 0
    with pytest.raises(ZeroDivisionError):
        _plots.save(figure, tmp_path / "a.png")
    assert [each.name
            for each in tmp_path.iterdir()] == ["a.png"] and (tmp_path / "a.png").read_bytes() == b"old"
