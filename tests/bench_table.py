#!/usr/bin/env python3
"""Prints the rows of a benchmark as one table, beside the figures of the last release.

    bench_table.py ROWS PERFORMANCE.md

Each line of ROWS has the fields work, ours, peer, ratio and goal, separated by tabs; a field may be empty. The figures
of the last release are the table below the heading "Last release" of PERFORMANCE.md, which has the columns that this
script prints. To record a release, replace that table with the printed one.
"""

import sys

COLUMNS = ("Work", "Runner", "Peer or minimum", "Ratio", "Goal")


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def last_release(path):
    """Returns the second cell of each row below the heading, by the first cell."""
    figures, inside = {}, False
    with open(path, encoding="utf-8") as page:
        for line in page:
            if line.startswith("#"):
                inside = line.strip("# \n") == "Last release"
            elif inside and line.startswith("|"):
                row = cells(line)
                figures[row[0]] = row[1]
    return figures


def main():
    rows_file, page = sys.argv[1:]
    earlier = last_release(page)
    print("| " + " | ".join((*COLUMNS, "Last release")) + " |")
    print("|" + " --- |" * (len(COLUMNS) + 1))
    with open(rows_file, encoding="utf-8") as rows:
        for line in rows:
            row = (line.rstrip("\n").split("\t") + [""] * len(COLUMNS))[: len(COLUMNS)]
            print("| " + " | ".join((*row, earlier.get(row[0], ""))) + " |")


main()
