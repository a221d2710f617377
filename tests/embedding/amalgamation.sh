#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Makes the two files of scripts/amalgamate, compiles them with each compiler that is installed, and
# runs the program of docs/EMBEDDING.md, one with streams, and parts of the conformance suite with
# them. Prints TAP.
set -euo pipefail
# shellcheck source=tests/embedding/guide.bash
. "${RDMUX_SOURCE:?scripts/test sets it}/tests/embedding/guide.bash"

newcomer=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-amalgamation.XXXXXX")
trap 'rm -rf "$newcomer"' EXIT
two=$newcomer/two/rdmux

# compiles COMPILER OPTION...: the file compiles alone, without a warning.
compiles() {
    "$1" -Wall -Wextra -Werror "${@:2}" -fsyntax-only "$two/rdmux_all.c"
}

is_made_again_alike() {
    "$RDMUX_SOURCE/scripts/amalgamate" "$newcomer/again" && diff -rq "$two" "$newcomer/again"
}

# What another copy in the process could be bound to.
exports_nothing() {
    local names
    cc -shared -o "$newcomer/two.so" "$newcomer/two/rdmux_all.o" -pthread -ldl
    names=$(nm --dynamic --defined-only "$newcomer/two.so" | awk '$2 != "A" { print $3 }')
    [[ -z $names ]] || {
        printf 'a shared library exports %s\n' "$names"
        return 1
    }
}

# The names of the public headers, with OpenSSL or without.
has_every_function() {
    local differences
    differences=$(diff <(names_of "$RDMUX_BUILD/lib/librdmux.so" --dynamic) <(names_of "$newcomer/two/rdmux_all.o" |
        grep -Fxf <(names_of "$RDMUX_BUILD/lib/librdmux.so" --dynamic))) && return 0
    printf 'of librdmux.so the file lacks:\n%s\n' "$differences"
    return 1
}

names_of() {
    nm --defined-only --extern-only "${@:2}" "$1" | awk '$3 ~ /^rdmux_/ { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort -u
}

# The command, with the objects of the build and the two files in the place of the library.
links_the_command() {
    local objects=$RDMUX_BUILD/CMakeFiles
    local -a libraries=()
    # Of the command itself.
    ((${#openssl[@]} == 0)) || libraries+=(-lcrypto)
    ! grep -q RDMUX_HAVE_JSON_C=1 "$RDMUX_BUILD/compile_commands.json" || libraries+=(-ljson-c)
    # shellcheck disable=SC2046
    cc -o "$newcomer/rdmux" $(find "$objects"/rdmux_{tool,conformance}.dir -name '*.o') \
        "$newcomer/two/rdmux_all.o" -pthread -ldl -lm "${libraries[@]}" || return 1
    ! ldd "$newcomer/rdmux" | grep librdmux
}

# keeps_rules PROVIDER OPTION...: those of the cases that the options name. The two processes of a case sleep
# while they wait: two that poll, and a CPU that adds, leave a busy machine no time for the work of each round trip.
keeps_rules() {
    "$newcomer/rdmux" conformance --quick --seed 1 --patience 4 --provider "$1" --wait sleep "${@:2}" >"$newcomer/suite" ||
        { cat "$newcomer/suite" && return 1; }
    grep -qE "^$1: [1-9][0-9]* rules kept, 0 broken" "$newcomer/suite" || { cat "$newcomer/suite" && return 1; }
}

openssl=()
if grep -q RDMUX_HAVE_OPENSSL=1 "$RDMUX_BUILD/compile_commands.json"; then
    openssl=(-DRDMUX_HAVE_OPENSSL=1)
fi
guide_write "$newcomer"
tap 'the commands of the guide compile two files without a warning, and a program with them' \
    guide_runs amalgamation shm
if [[ ! -e $two/rdmux_all.c ]]; then
    echo 'Bail out! scripts/amalgamate has written no rdmux_all.c'
    exit 1
fi
tap 'the same sources give the same two files' is_made_again_alike
for compiler in gcc clang; do
    if ! have "$compiler"; then
        tap_skip "$compiler compiles the file" "$compiler is not installed"
        continue
    fi
    # Names that two files of the core give a meaning would clash here, or be declared twice.
    tap "$compiler compiles the file" compiles "$compiler" -std=c11 -pedantic -Wredundant-decls
    if ((${#openssl[@]} > 0)); then
        tap "$compiler compiles the file with OpenSSL" compiles "$compiler" "${openssl[@]}"
    else
        tap_skip "$compiler compiles the file with OpenSSL" 'rdmux was built without OpenSSL'
    fi
done
tap 'a shared library with the file exports no name' exports_nothing
tap 'the file has every function of librdmux.so' has_every_function
tap 'the program runs over tcp' "$newcomer/two/hello" tcp
tap 'a program with streams builds' \
    guide_echo "$newcomer/two/echo" -I"$newcomer/two" "$newcomer/two/rdmux_all.o" -pthread -ldl
for path in tcp shm; do
    tap "its stream is echoed over $path" guide_echoes "$newcomer/two/echo" "$path"
done
if [[ -d $RDMUX_BUILD/CMakeFiles/rdmux_conformance.dir ]]; then
    tap 'the rdmux command links with the file' links_the_command
    for provider in tcp shm; do
        for suite in connect transfer streams; do
            tap "$provider keeps the rules of the suite $suite" keeps_rules "$provider" --case "$suite"
        done
        tap "$provider keeps the rule of atomics" keeps_rules "$provider" --case 'sum up exactly' --case 'with each other'
    done
else
    tap_skip 'tcp and shm keep the rules' 'rdmux was built without the command'
fi
tap_end
