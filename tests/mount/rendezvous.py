"""What the processes of a job have said so far where they meet (src/net/meeting/rendezvous_file.h)."""
import os
import struct

MAGIC = b"SWRZ"
HEAD = struct.Struct("<4sIQIIQQII")  # magic, bytes of the body, hash, kind, rank, nonce, session, round, zero
KINDS = {1: "hello", 2: "welcome", 3: "gather", 4: "bye", 5: "answer"}


def records_of(content):
    found, at = set(), 0
    while at + HEAD.size <= len(content) and content[at:at + 4] == MAGIC:
        _, body, _, kind, rank, _, _, turn, _ = HEAD.unpack_from(content, at)
        found.add((KINDS[kind], rank, turn))
        at += HEAD.size + body
    return found


def said(backing, word):
    """{(kind, rank, round)} of the meeting of that word: a rank that has said ("gather", rank, 2) is in the
    third collective call, until all have.
    """
    folder = os.path.join(backing, ".swale", "meeting")
    found = set()
    try:
        for meeting in (name for name in os.listdir(folder) if word in name):
            for name in os.listdir(os.path.join(folder, meeting)):
                with open(os.path.join(folder, meeting, name), "rb") as file:
                    found |= records_of(file.read())
    except OSError:
        pass  # not yet, or no more
    return found
