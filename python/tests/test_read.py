"""Reading: trajectories, scans, conditions, the largest, keys, epochs."""
from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pytest
from conftest import EPOCHS, PARTICLE, RECORDS, frame

import swale


def test_a_trajectory_is_a_structured_array_by_epoch(run: str) -> None:
    with swale.open(run) as d:
        rows = d[17]
        assert rows.dtype.names == ("epoch", "step", "time", "x", "v", "id")
        assert rows["epoch"].tolist() == [0, 1, 2, 3]
        assert rows["step"].tolist() == [0, 10, 20, 30]
        assert rows["time"].tolist() == [0, 0.5, 1, 1.5]
        assert rows["x"].tolist() == [17, 1017, 2017, 3017]
        assert rows["v"].shape == (4, 3) and rows["v"][0].tolist() == [51, 52, 53]
        assert d.get(17, epoch=-1)["x"].tolist() == [3017]
        assert d[np.uint64(17)].tobytes() == rows.tobytes()


def test_bits_survive(run: str) -> None:
    with swale.open(run) as d:
        rows = d[3]
        assert np.isnan(rows["x"]).all()
        assert rows["v"][0].tobytes() == np.array([np.inf, -np.inf, -0.0], "f4").tobytes()


def test_a_missing_key_is_a_key_error(run: str) -> None:
    with swale.open(run) as d:
        with pytest.raises(KeyError, match="^500$"):
            d[500]
        with pytest.raises(KeyError):
            d.get(500, epoch=0)
        assert 499 in d and 500 not in d


def test_a_scan_has_all_records(run: str) -> None:
    with swale.open(run) as d:
        table = d.scan()
        assert len(table) == len(d) == RECORDS * EPOCHS
        assert list(table) == ["epoch", "step", "time", "key", "x", "v", "id"]
        order = np.lexsort((table["key"], table["epoch"]))
        for epoch in range(EPOCHS):
            mine = order[epoch * RECORDS:(epoch + 1) * RECORDS]
            assert (table["epoch"][mine] == epoch).all()
            for name in PARTICLE.names:
                assert table[name][mine].tobytes() == np.ascontiguousarray(frame(epoch)[name]).tobytes()


def test_conditions_and_columns_choose(run: str) -> None:
    with swale.open(run) as d:
        table = d.scan(where="x >= 498 and key != 499", epochs=0, columns=["key", "x"])
        assert table["key"].tolist() == [498] and list(table) == ["key", "x"]
        assert len(d.scan(where="x < 1e9", epochs=0)) == RECORDS - 1, "NaN is never less"
        assert len(d.scan(where="x > 1e9")) == 0
        assert d.scan(where="x > 1e9")["v"].shape == (0, 3)


@pytest.mark.parametrize(("epochs", "found"), [
    (None, {0, 1, 2, 3}), (1, {1}), (-1, {3}), (slice(1, 3), {1, 2}), (slice(None, None, 2), {0, 2}),
    (range(2), {0, 1}), ([3, 0], {0, 3}), (np.array([2]), {2}), (np.int64(2), {2})])
def test_epochs_can_be_given_in_many_ways(run: str, epochs: swale._directory.Epochs, found: set[int]) -> None:
    with swale.open(run) as d:
        assert set(d.scan(epochs=epochs, columns="epoch")["epoch"].tolist()) == found


def test_many_keys_are_one_table_by_key_and_epoch(run: str) -> None:
    keys = np.array([7, 400, 3, 999, 7], dtype="i8")
    with swale.open(run) as d:
        for given in (keys, keys.tolist(), (int(key) for key in keys), keys.astype("u8")[::1],
                      np.repeat(keys, 2)[::2]):
            table = d.get_many(given, columns=["key", "epoch", "id"])
            assert table["key"].tolist() == [7] * 4 + [400] * 4 + [3] * 4 + [7] * 4
            assert table["epoch"].tolist() == [0, 1, 2, 3] * 4
            assert (table["id"] == table["key"]).all()
        assert len(d.get_many([])) == 0
        assert d.get_many([7], epochs=2, where="x > 0")["x"].tolist() == [2007]


def test_the_largest_and_smallest(run: str) -> None:
    with swale.open(run) as d:
        assert d.top("x", 3)["key"].tolist() == [499, 498, 497]
        assert d.top("x", 2, epoch=0, smallest=True)["x"].tolist() == [0, 1]
        assert d.top("v[1]", 1)["key"].tolist() == [499]


def test_keys_and_samples(run: str) -> None:
    with swale.open(run) as d:
        assert sorted(d.keys()) == list(range(RECORDS))
        drawn = d.sample(20, seed=7)
        assert len(set(drawn.tolist())) == 20 and drawn.tolist() == d.sample(20, seed=7).tolist()
        assert drawn.tolist() != d.sample(20, seed=8).tolist()


def test_a_warm_directory_reads_no_index(run: str) -> None:
    with swale.open(run) as d:
        taken = d.warm()
        assert taken > 0 and d.stats()["cache.bytes"] >= taken
        assert 0 < d.warm(-1) < taken  # the last epoch
        before = d.stats()
        assert d[17]["x"].tolist() == [17, 1017, 2017, 3017]
        read = d.stats()["read.requests"] - before["read.requests"]
        assert 0 < read <= EPOCHS and d.stats()["cache.hits"] - before["cache.hits"] >= EPOCHS
        assert d[17]["x"].tolist() == [17, 1017, 2017, 3017]
        assert d.stats()["read.requests"] - before["read.requests"] == read  # its blocks are there, too
        with pytest.raises(IndexError):
            d.warm(EPOCHS)
    with swale.open(run, options="imd.cache=0") as d, pytest.raises(swale.InvalidArgumentError):
        d.warm()


def test_what_there_is(run: str) -> None:
    with swale.open(run) as d:
        assert [epoch.step for epoch in d.epochs] == [0, 10, 20, 30]
        assert d.epochs[1] == swale.Epoch(1, 10, 0.5, RECORDS)
        assert d.key_type == "u64" and d.schema["x"].unit == "m" and d.schema["v"].count == 3
        assert d.schema.dtype == PARTICLE
        assert str(d.schema) == "x:f8:m;v:f4x3;id:u4"
        d[1]
        assert d.stats()["queries"] == 1
        assert d.epoch_stats()["append.records"]["sum"] == RECORDS
        assert repr(d).startswith("<swale.Directory") and "2,000 records" in repr(d)


def test_text_keys_and_values_of_any_length(texts: str) -> None:
    with swale.open(texts) as d:
        assert d["ä"]["value"].tolist() == [b"", "ä1".encode()]
        assert sorted(d.keys()) == ["<b>", "b", "ä"]
        table = d.scan(epochs=1)
        assert dict(zip(table["key"], table["value"])) == {name: f"{name}1".encode()
                                                           for name in ("ä", "b", "<b>")}
        assert "&lt;b&gt;" in table._repr_html_() and "<b>" not in table._repr_html_().replace("<table>", "")


def test_fields_that_values_lack_are_masked(tmp_path) -> None:
    with swale.create(tmp_path / "d", schema=[("a", "u1"), ("b", "f8")], key="bytes",
                      options="") as out:
        out.append(b"k", (1, 2.5))
        out.epoch_end(0)
    short = tmp_path / "short"
    with swale._writer.Writer(str(short), "imd.schema=a:u1;b:f8;_:*", "bytes", None, create=True) as out:
        out.append(b"whole", b"\x01" + np.float64(2.5).tobytes())
        out.append(b"short", b"\x02")
        out.epoch_end(0)
    with swale.open(short) as d:
        table = d.scan()
        by_key = dict(zip(table["key"].tolist(), table["b"].tolist()))
        assert by_key == {b"whole": 2.5, b"short": None}
        frame = table.to_pandas().set_index("key")
        assert frame.loc[b"whole", "b"] == 2.5 and np.isnan(frame.loc[b"short", "b"])
        with pytest.raises(ValueError, match="get_many"):
            d[b"short"]
        assert d.scan(where="b > 0")["key"].tolist() == [b"whole"]


def test_a_stream_gives_batches(run: str) -> None:
    with swale.open(run) as d:
        with d.stream(columns=["key"], batch_rows=100, threads=2) as stream:
            first = next(stream)
            assert 0 < len(first) <= 100
        with pytest.raises(ValueError, match="closed"):
            next(stream)
        stream = d.stream(columns=["key"], batch_rows=64)
        d.close()
        assert sum(len(batch) for batch in stream) == RECORDS * EPOCHS, "it outlives the directory"


def test_parts_have_each_record_once(run: str) -> None:
    with swale.open(run) as d:
        for parts in (1, 3, 7):
            found = [(table["epoch"].tolist(), table["key"].tolist()) for part in range(parts)
                     for table in d.stream(part=part, parts=parts)]
            records = sorted(zip(*(sum(column, []) for column in zip(*found))))
            assert records == [(epoch, key) for epoch in range(EPOCHS) for key in range(RECORDS)]
        for wrong in ({"part": 3, "parts": 3}, {"parts": 0}, {"part": -1}):
            with pytest.raises(ValueError, match="part"):
                d.stream(**wrong)


def test_columns_are_not_copied(run: str) -> None:
    with swale.open(run) as d:
        [batch] = list(d.get_many([1, 2]).batches())
        assert batch["x"].base is not None and not batch["x"].flags.writeable and not batch["x"].flags.owndata
        x = batch["x"]
        del batch
        assert x.tolist() == d.get_many([1, 2])["x"].tolist(), "an array keeps its memory"


def test_a_pickled_directory_opens_anew(run: str) -> None:
    with swale.open(run) as d:
        copy = pickle.loads(pickle.dumps(d))
    assert copy[1]["x"].tolist() == [1, 1001, 2001, 3001]


def test_sixteen_threads_share_a_directory(run: str) -> None:
    failures: list[object] = []
    with swale.open(run) as d:
        def ask(number: int) -> None:
            for key in range(number, RECORDS, 16):
                if d[key]["id"].tolist() != [key] * EPOCHS:
                    failures.append(key)
            if len(d.scan(where=f"key % 16 == {number}",
                          threads=2)) != EPOCHS * len(range(number, RECORDS, 16)):
                failures.append(number)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


# that fork and threads do not go together is what is tested
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_an_error(run: str) -> None:
    with swale.open(run) as d:
        stream = d.stream(batch_rows=10)
        next(stream)
        child = os.fork()
        if child == 0:
            told = 0
            for call in (lambda: d[1], lambda: next(stream), lambda: d.scan()):
                try:
                    call()
                except (RuntimeError, swale.InvalidArgumentError) as error:
                    told += "child" in str(error)
            del stream
            os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert len(next(stream)) > 0, "the parent's goes on"


def test_epochs_appear_with_a_refresh(tmp_path) -> None:
    with swale.create(tmp_path / "d", schema=PARTICLE, key="u64") as out:
        out.append(1, frame(0)[1])
        out.epoch_end(0)
        with swale.open(tmp_path / "d") as d:
            assert not d.refresh()
            out.append(1, frame(1)[1])
            out.epoch_end(1)
            assert len(d[1]) == 1
            assert d.refresh()
            assert len(d[1]) == 2 and len(d.epochs) == 2
