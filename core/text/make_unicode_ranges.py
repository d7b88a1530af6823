#!/usr/bin/env python3
"""Writes unicode_ranges.inc from the Unicode character database: make_unicode_ranges.py DerivedGeneralCategory.txt > unicode_ranges.inc

The file lists the code points of \\p{L} and \\p{N} as ranges {first, last}.
"""
import sys


def ranges(path, major):
    found = []
    for line in open(path, encoding="utf-8"):
        fields = line.split("#")[0].split(";")
        if len(fields) == 2 and fields[1].strip().startswith(major):
            first, _, last = fields[0].strip().partition("..")
            found.append((int(first, 16), int(last or first, 16)))
    merged = []
    for first, last in sorted(found):
        if merged and first == merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged


def main():
    version = open(sys.argv[1], encoding="utf-8").readline().strip("# \n")
    print(f"// Made by make_unicode_ranges.py from {version}; do not edit.")
    print("// clang-format off")
    for name, major in (("kLetterRanges", "L"), ("kNumberRanges", "N")):
        print(f"constexpr CodePointRange {name}[] = {{")
        line = "   "
        for first, last in ranges(sys.argv[1], major):
            item = f" {{0x{first:X}, 0x{last:X}}},"
            if len(line) + len(item) > 120:
                print(line)
                line = "   "
            line += item
        print(line + "\n};")
    print("// clang-format on")


main()
