# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
# Shared functions of the scripts. Sourcing it changes nothing.

# The project's warnings that gcc and clang support in C and C++.
# shellcheck disable=SC2034
readonly COMMON_WARNINGS=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wcast-qual -Wformat=2
    -Wundef -Wvla)
# shellcheck disable=SC2034
readonly C_WARNINGS=("${COMMON_WARNINGS[@]}" -Wstrict-prototypes -Wmissing-prototypes)

have() {
    command -v "$1" >/dev/null 2>&1
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# project_files PATTERN...: the files of the source tree that match, tracked or not yet, sorted.
# Run it in the root of the tree.
project_files() {
    local pattern tests=()
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do
            [[ ! -f $file ]] || printf '%s\n' "$file"
        done | LC_ALL=C sort -u
        return
    fi
    for pattern; do
        case $pattern in
        */*) tests+=(-o -path "./$pattern") ;;
        *) tests+=(-o -name "$pattern") ;;
        esac
    done
    find . \( -path ./build -o -path ./.git \) -prune -o -type f \( -false "${tests[@]}" \) -print |
        sed 's|^\./||' | LC_ALL=C sort -u
}

# matches [GREP-OPTION...] PATTERN: whether a line of standard input matches. It reads all of it, unlike grep -q,
# which ends at the first match: what writes on then fails, and its pipeline with it, sometimes.
matches() {
    (($(grep -c "$@") > 0))
}

# TAP, the protocol between scripts/test and what it runs:
#   tap NAME COMMAND...   one case; on failure the command's output is shown as comments
#   tap_skip NAME WHY     one case that this machine cannot run
#   tap_end               the plan; the script's status is 1 if a case failed
tap_count=0
tap_failed=0

tap() {
    local name=$1 output
    shift
    tap_count=$((tap_count + 1))
    if output=$("$@" 2>&1); then
        printf 'ok %d - %s\n' "$tap_count" "$name"
    else
        tap_failed=$((tap_failed + 1))
        printf 'not ok %d - %s\n' "$tap_count" "$name"
        printf '%s\n' "$output" | sed 's/^/# /'
    fi
}

tap_skip() {
    tap_count=$((tap_count + 1))
    printf 'ok %d - %s # SKIP %s\n' "$tap_count" "$1" "$2"
}

tap_end() {
    printf '1..%d\n' "$tap_count"
    ((tap_failed == 0))
}
