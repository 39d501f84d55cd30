"""xarray's engine `swale`: ``xarray.open_dataset("run", engine="swale", keys=[17, 4711])``.

xarray finds it by its entry point (pyproject.toml); this module is imported by xarray alone.
"""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from . import _lazy
from ._directory import Epochs
from ._directory import open as open_directory

_backends: Any = _lazy.load("xarray.backends", "the engine of xarray")


class SwaleBackend(_backends.BackendEntrypoint):  # type: ignore[misc]
    """Trajectories of a massive directory over (key, epoch): NaN where a key has no record, units as
    attributes.
    """

    description = "Massive directories of Swale"
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "keys", "epochs", "columns", "where")

    def open_dataset(self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None,
                     keys: Any = None, epochs: Epochs = None, columns: Iterable[str] | None = None,
                     where: str | None = None) -> Any:
        """As `Directory.get_many` of the keys, or without keys as `Directory.scan`: the answer is in memory.

        Key and epoch are read whatever the columns are.
        """
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        names = None
        if columns is not None:
            asked = [columns] if isinstance(columns, str) else list(columns)
            names = list(dict.fromkeys(["epoch", "step", "time", "key", *asked]))
        with open_directory(filename_or_obj) as directory:
            if names is None:
                names = ["epoch", "step", "time", "key", *directory.schema]
            names = [name for name in names if name in ("epoch", "key") or name not in dropped]
            if keys is None:
                table = directory.scan(epochs=epochs, columns=names, where=where)
            else:
                table = directory.get_many(keys, epochs=epochs, columns=names, where=where)
            data = table.to_xarray()
            data.attrs.update({name: value for name, value in directory.attributes.items()
                               if isinstance(value, (str, int, float))})
            return data

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is a massive directory."""
        try:
            return os.path.isfile(os.path.join(os.fspath(filename_or_obj), "swale.json"))
        except TypeError:
            return False
