"""What two runs of GROMACS have in common of their restart files (.cpt), byte by byte.

Two things differ between native runs, too: the date at which the file was written, in its head, and what it
says of the run's own log, which has dates, times and the working directory. Of each output file a restart
file has name, length (two words), the length that was summed (one) and an MD5 sum, a word for each of its
bytes.
"""
import re

DATE = re.compile(rb"\0\0\0\x19[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\n")
LOG = re.compile(rb"\0\0\0\x07run\.log\0.{%d}" % (4 * (3 + 16)), re.DOTALL)


def masked(content):
    for what, pattern in (("a date", DATE), ("an entry of run.log", LOG)):
        found = pattern.findall(content)
        if len(found) != 1:
            raise AssertionError(f"a restart file of GROMACS: {len(found)} times {what}: expected 1")
        content = content.replace(found[0], b"\0" * len(found[0]))
    return content
