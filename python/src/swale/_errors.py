"""The exceptions of Swale: one class for each code of the C interface."""
from __future__ import annotations

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "BusyError",
    "CorruptionError",
    "DeadlineExceededError",
    "InternalError",
    "InvalidArgumentError",
    "NoSpaceError",
    "NotFoundError",
    "ResourceExhaustedError",
    "StorageError",
    "SwaleError",
    "UnavailableError",
    "UnsupportedError",
]


class SwaleError(Exception):
    """A call of Swale that failed. Its text says what failed, where, and what to do.

    Attributes
    ----------
    path : str
        The file or directory that failed; empty if the text names none.
    offset : int or None
        The place in that file.
    epoch, partition : int or None
        Whose records are concerned.
    """

    path: str = ""
    offset: int | None = None
    epoch: int | None = None
    partition: int | None = None


class InvalidArgumentError(SwaleError, ValueError):
    """The caller's mistake; nothing was done."""


class NotFoundError(SwaleError, FileNotFoundError):
    """There is no such directory or epoch. (A key that has no value is a KeyError.)"""


class AlreadyExistsError(SwaleError, FileExistsError):
    """The directory exists already."""


class CorruptionError(SwaleError):
    """Damaged bytes in a file: `path` and `offset` say where. Wrong data are never returned instead."""


class StorageError(SwaleError, OSError):
    """The operating system refused or failed."""


class NoSpaceError(StorageError):
    """The disk or the quota is full."""


class ResourceExhaustedError(SwaleError, MemoryError):
    """Memory or a stated limit is used up."""


class UnavailableError(SwaleError, ConnectionError):
    """Another rank of the job is gone."""


class DeadlineExceededError(SwaleError, TimeoutError):
    """Waited as long as promised; the text says for what."""


class BusyError(SwaleError):
    """Another job is writing to the directory."""


class UnsupportedError(SwaleError):
    """A newer format, or something that this version lacks."""


class AbortedError(SwaleError):
    """Given up because of an earlier failure, a cancellation, or because an epoch was dropped meanwhile."""


class InternalError(SwaleError):
    """A mistake of Swale: please report it."""


# By swale_code.
_CLASSES: dict[int, type[SwaleError]] = {
    1: InvalidArgumentError,
    2: NotFoundError,
    3: AlreadyExistsError,
    4: CorruptionError,
    5: StorageError,
    6: NoSpaceError,
    7: ResourceExhaustedError,
    8: UnavailableError,
    9: DeadlineExceededError,
    10: BusyError,
    11: UnsupportedError,
    12: AbortedError,
    13: InternalError,
}


def make(code: int, message: str, path: str, offset: int, epoch: int, partition: int) -> SwaleError:
    """The exception of a failed call; -1 stands for an unknown number. Called by the compiled module."""
    error = _CLASSES.get(code, InternalError)(message)
    error.path = path
    error.offset = None if offset < 0 else offset
    error.epoch = None if epoch < 0 else epoch
    error.partition = None if partition < 0 else partition
    return error
