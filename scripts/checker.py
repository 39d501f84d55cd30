"""What the checks of the tree (check-docs.py, check-layers.py) have in common: their command line and what
they say.
"""
import os
import sys


def canaries_noticed(check, failures, noticed):
    """Says which canaries went unnoticed, or `noticed`. Returns the exit status; `check` is the name of the
    script.
    """
    for failure in failures:
        print(f"{check}: {failure}", file=sys.stderr)
    if not failures:
        print(noticed)
    return 1 if failures else 0


def main(self_test, check_tree, all_well):
    """SCRIPT [TREE] [--self-test]: prints what is wrong with the tree, or `all_well`. Returns the exit
    status.
    """
    if "--self-test" in sys.argv[1:]:
        return self_test()
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = check_tree(root)
    for line in found:
        print(line)
    if not found:
        print(all_well)
    return 1 if found else 0
