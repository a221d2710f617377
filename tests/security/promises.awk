# SPDX-License-Identifier: BSD-2-Clause-Patent
# Prints the tests that the table of promises in docs/SECURITY.md names, one per line:
# PROGRAM|CASE|LINE. CASE is empty where the table names a whole program, group or rule.
/^## / { is_table = ($0 == "## Promises and their tests") }
is_table && /^\| / && !/^\| promise/ && !/^\|[ -]*\|[ -|]*$/ {
    columns = split($0, column, " \\| ")
    if (columns < 2) {
        print "?|the row has no second column|" NR
        next
    }
    tests = column[columns]
    count = 0
    while (match(tests, /`[^`]+`/)) {
        name = substr(tests, RSTART + 1, RLENGTH - 2)
        tests = substr(tests, RSTART + RLENGTH)
        case_name = ""
        if (match(name, /: /)) {
            case_name = substr(name, RSTART + 2)
            name = substr(name, 1, RSTART - 1)
        }
        print name "|" case_name "|" NR
        count++
    }
    if (count == 0) {
        print "?|the row names no test|" NR
    }
}
