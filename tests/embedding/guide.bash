# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
# The code of docs/EMBEDDING.md. A block has a name after its language: a file, or for sh the part of
# the guide that it belongs to.
: "${RDMUX_SOURCE:?scripts/test sets it}" "${RDMUX_BUILD:?scripts/test sets it}" "${RDMUX_PREFIX:?scripts/test sets it}"
# shellcheck source=scripts/lib.sh
. "$RDMUX_SOURCE/scripts/lib.sh"
readonly guide=$RDMUX_SOURCE/docs/EMBEDDING.md
# Optimised code has other warnings, and takes three times as long to compile: --thorough.
guide_optimises=(CFLAGS=-O0)
[[ ${RDMUX_TEST_LEVEL-} != thorough ]] || guide_optimises=()
newcomer= # the folder where the commands run; the test sets it

# guide_write FOLDER: writes the files of the guide.
guide_write() {
    local language name
    while read -r language name; do
        [[ $name != */* ]] || mkdir -p "$1/${name%/*}"
        guide_block "$language" "$name" >"$1/$name"
    done < <(sed -nE 's/^```(c|cmake) (.+)$/\1 \2/p' "$guide")
    mkdir -p "$1/objects" # of compile_once
    # The dev build has compiled the same files. With --thorough each project compiles its own.
    [[ ${RDMUX_TEST_LEVEL-} == thorough ]] || ! have jq || jq -r '.[] | .directory + "\t" + .command' \
        "$RDMUX_BUILD/compile_commands.json" >"$1/objects/commands"
    [[ -s $1/hello.c ]]
}

# guide_block LANGUAGE NAME: prints the blocks of this name.
guide_block() {
    awk -v first="\`\`\`$1 $2" '$0 == first { on = 1; next } /^```/ { on = 0 } on' "$guide"
}

# guide_parts: names the parts that have commands.
guide_parts() {
    sed -nE 's/^```sh (.+)$/\1/p' "$guide" | awk '!seen[$0]++'
}

# guide_runs PART [OUTPUT]: runs the commands of a part in $newcomer, with the path that the program prints.
guide_runs() {
    local part=$1 want=${2-} output generator=
    ! have ninja || generator=Ninja # starts fewer processes than make
    guide_block sh "$part" >"$newcomer/$part.sh"
    [[ -s $newcomer/$part.sh ]] || {
        echo "the guide has no commands for $part"
        return 1
    }
    output=$(cd "$newcomer" && env -i HOME="$newcomer" PATH="$PATH" TMPDIR="${TMPDIR:-/tmp}" PREFIX="$RDMUX_PREFIX" \
        RDMUX="$RDMUX_SOURCE" "${guide_optimises[@]}" CMAKE_BUILD_PARALLEL_LEVEL="${RDMUX_JOBS:-1}" \
        ${generator:+"CMAKE_GENERATOR=$generator"} \
        CMAKE_C_COMPILER_LAUNCHER="$RDMUX_SOURCE/tests/embedding/compile_once;$newcomer/objects" \
        bash -e -o pipefail "$part.sh" 2>&1) || {
        printf '%s\n' "$output"
        return 1
    }
    printf '%s\n' "$output"
    # No path is named where the machine decides it.
    grep -qxE "hello over ${want:-[a-z]+}" <<<"$output" || {
        echo "the program does not say 'hello over ${want:-...}'"
        return 1
    }
    ! grep -qE 'warning:' <<<"$output" || {
        echo 'there are warnings'
        return 1
    }
}

# guide_echo PROGRAM OPTION...: builds examples/stream_echo.c, as a source for all ways.
guide_echo() {
    sed 's|#include <rdmux/stream.h>|#include "streams.h"|' "$RDMUX_SOURCE/examples/stream_echo.c" >"$newcomer/echo.c"
    grep -q '"streams.h"' "$newcomer/echo.c" && cc -std=c11 -Wall -Wextra -Werror "$newcomer/echo.c" -o "$@"
}

# guide_echoes PROGRAM PATHS: two processes of that program exchange a stream that is longer than the rings.
guide_echoes() {
    local server address=
    head -c 3000000 /dev/urandom >"$newcomer/said"
    : >"$newcomer/serving" # the server to come empties it, perhaps after the address of an earlier one was read
    RDMUX_PATHS=$2 "$1" serve 127.0.0.1:0 1 >"$newcomer/serving" 2>"$newcomer/served" &
    server=$!
    while [[ -z $address ]]; do
        kill -0 "$server" || return 1
        sleep 0.02
        address=$(sed -n 's/^listening on //p' "$newcomer/serving")
    done
    RDMUX_PATHS=$2 "$1" send "$address" <"$newcomer/said" >"$newcomer/echoed" || {
        kill "$server"
        return 1
    }
    wait "$server" && cmp "$newcomer/said" "$newcomer/echoed" && grep -q " over $2\$" "$newcomer/served"
}
