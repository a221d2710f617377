# SPDX-License-Identifier: BSD-2-Clause-Patent
# Takes the blocks of code out of a page: `awk -v folder=FOLDER -f blocks.awk PAGE` writes block N to
# FOLDER/N and prints "N LINE LANGUAGE<tab>REST" for each, REST being what follows the language in
# the line that opens the block, or "-".

/^ *```/ {
    if (is_open) {
        is_open = 0
        close(file)
        next
    }
    is_open = 1
    file = folder "/" ++count
    printf "" >file
    text = $0
    sub(/^ *```/, "", text)
    language = text
    sub(/ .*/, "", language)
    rest = substr(text, length(language) + 2)
    print count, NR, (language == "" ? "-" : language) "\t" (rest == "" ? "-" : rest)
    next
}

is_open { print >file }

END {
    if (is_open) print count + 1, NR, "-\tis not closed"
}
