#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Hand-overs between threads in every order that C11 allows, weaker processors than this one included
# (model.h). Each memory order that the code names is needed: with a weaker one the model must find
# an order that breaks a program.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
limit=120 # seconds for a program: beyond, it hangs

# The program of each model, and the source of rdmux that it runs.
declare -A source_of=([cq]=api/progress/cq_owner.c [shm]=shm/shm_ring.c)

# build MODEL TREE OUT: compiles the sources of the tree. The functions that -fsanitize=thread calls
# are in model.c.
build() {
    local flags=(-std=c11 -O1 -g -D_GNU_SOURCE -I"$2" -I"$2/api/include" -I"$root" -I"$root/api/include")
    local file
    rm -rf "$3" && mkdir -p "$3"
    for file in "$2/${source_of[$1]}" "$here/$1.c"; do
        "${CC:-cc}" "${flags[@]}" -fsanitize=thread -U__SANITIZE_THREAD__ -c "$file" -o "$3/$(basename "$file" .c).o" || return
    done
    "${CC:-cc}" "$3"/*.o "$scratch/model.o" -o "$3/program"
}

# explore MODEL: runs the programs, and reports each case of theirs.
explore() {
    local line name
    if ! build "$1" "$root" "$scratch/$1" >"$scratch/log" 2>&1; then
        tap "the model of $1 is built" cat_and_fail "$scratch/log"
        return
    fi
    timeout "$limit" "$scratch/$1/program" >"$scratch/log" 2>&1 || true
    cp "$scratch/log" "$scratch/said"
    while IFS= read -r line; do
        name=${line#*- }
        case $line in
        ok*) tap "$name" true ;;
        'not ok'*) tap "$name" cat_and_fail "$scratch/log" ;;
        esac
    done <"$scratch/said"
    grep -qE '^(not )?ok' "$scratch/log" || tap "the model of $1 runs" cat_and_fail "$scratch/log"
}

cat_and_fail() {
    cat "$1"
    return 1
}

# is_found MODEL FILE EDIT: with the edit of the file, a script for sed, the model finds an order that
# breaks a program.
is_found() {
    local tree=$scratch/tree status=0
    rm -rf "$tree"
    mkdir -p "$tree/api"
    cp -r "$root/api/progress" "$tree/api/"
    cp -r "$root/shm" "$tree/"
    sed -E "$3" "$root/$2" >"$tree/$2"
    ! cmp -s "$root/$2" "$tree/$2" || {
        echo "the edit no longer applies to $2"
        return 1
    }
    build "$1" "$tree" "$scratch/edited" || return
    timeout "$limit" "$scratch/edited/program" >"$scratch/log" 2>&1 || status=$?
    if ((status != 1)) || ! grep -qE '^# .*, in this order:$' "$scratch/log"; then
        echo "survived, status $status:"
        cat "$scratch/log"
        return 1
    fi
}

"${CC:-cc}" -std=c11 -O2 -D_GNU_SOURCE -I"$root" -c "$here/model.c" -o "$scratch/model.o" || {
    echo 'Bail out! model.c does not compile'
    exit 1
}
echo 'int main(void) { return 0; }' >"$scratch/probe.c"
"${CC:-cc}" -fsanitize=thread -c "$scratch/probe.c" -o "$scratch/probe.o" 2>/dev/null || {
    echo '1..0 # SKIP the compiler has no -fsanitize=thread'
    exit 77
}
explore shm
explore cq
while IFS='|' read -r model file edit says; do
    [[ -n $model && $model != '#'* ]] || continue
    tap "an order is found that breaks it: $says" is_found "$model" "$file" "$edit"
done <"$here/orders.def"
tap_end
