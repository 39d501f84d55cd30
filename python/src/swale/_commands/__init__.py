"""The commands of the package: `swale plot` and so on, which the command `swale` starts as `swale-plot`.

A module for each, with `main`, and `parser`, from which --help and the manual page are made
(python/manual.py). They print results on stdout and complaints on stderr. Exit status as for the command
`swale`: 0 fine, 1 a key is not there, 2 usage, 3 input/output error, damage, or a library that is not
installed.
"""
