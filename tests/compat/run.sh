#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# This version and the earlier ones that the file marks names: peers, programs, plug-ins and the
# binary interface. Prints TAP.
#
#   run.sh           all cases
#   run.sh PATTERN   cases whose name matches the pattern (a bash regular expression)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
new=${RDMUX_BUILD:-$root/build/dev}
wanted=${1:-}
limit=60 # seconds for one command: beyond, it hangs
jobs=$(nproc 2>/dev/null || echo 2)
unset RDMUX_PATHS RDMUX_LOG RDMUX_PROVIDER_DIR SIM_VERBS

[[ -x $new/bin/rdmux ]] || die "there is no command $new/bin/rdmux; build it, or name its tree in RDMUX_BUILD"
have jq || die 'jq is not installed'

# Beside the builds and not in TMPDIR: the library loads plug-ins only from folders that no other
# user may write to.
mkdir -p "$root/build/compat"
scratch=$(mktemp -d "$root/build/compat/run.XXXXXX")
started=()

end_processes() {
    local pid
    for pid in "${started[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}

clean_up() {
    end_processes
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fail() {
    printf '%s\n' "$*"
    exit 1
}

# check NAME COMMAND...: one case, if selected, in a subshell that ends the processes it started.
check() {
    [[ ! $1 =~ $wanted ]] || tap "$1" in_case "${@:2}"
}

skip() {
    [[ ! $1 =~ $wanted ]] || tap_skip "$1" "$2"
}

in_case() {
    started=()
    trap end_processes EXIT
    "$@"
}

# exec_over PATH COMMAND...: with a simulated adapter if the path needs one. Replaces the shell, so
# that $! in the background is the command's process.
exec_over() {
    exec 8>&- # the lock of build_mark
    case $1 in
    ib | roce | iwarp) exec env LD_PRELOAD="$new/lib/libsimverbs.so" SIM_VERBS="link=$1" "${@:2}" ;;
    *) exec "${@:2}" ;;
    esac
}

over() {
    (exec_over "$@")
}

# start_server TREE PATH OPTION...: sets server and address.
start_server() {
    local log=$scratch/server deadline=$((SECONDS + limit))
    rm -f "$log"
    exec_over "$2" "$1/bin/rdmux" serve 127.0.0.1:0 "${@:3}" >"$log" 2>"$log.err" </dev/null &
    server=$!
    started+=("$server")
    until [[ -s $log ]] && read -r _ _ address <"$log"; do
        if ((SECONDS >= deadline)) || ! kill -0 "$server" 2>/dev/null; then
            fail "the server did not start: $(cat "$log" "$log.err")"
        fi
        sleep 0.02
    done
}

# expect STATUS TREE PATH ARGUMENT...: the command ends in time with the status; its output goes to
# $scratch/out.
expect() {
    local status=0
    over "$3" timeout --kill-after=5 "$limit" "$2/bin/rdmux" "${@:4}" >"$scratch/out" 2>"$scratch/err" || status=$?
    [[ $status == "$1" ]] || fail "rdmux ${*:4}: status $status instead of $1: $(cat "$scratch/out" "$scratch/err")"
}

json() {
    jq -e "$1" "$scratch/out" >/dev/null || fail "not $1: $(cat "$scratch/out")"
}

# ------------------------------------------------------------------------------------------------ peers

# they_work CLIENT PATH OPTION...: all commands, over the path, with the server of this shell.
they_work() {
    local op test
    expect 0 "$1" "$2" explain "$address" --paths "$2" --json "${@:3}"
    json ".chosen.provider == \"$2\""
    while read -r op test; do
        expect 0 "$1" "$2" perf "$address" --paths "$2" --op "$op" --test "$test" --wait sleep \
            --iterations 20 --verify --json "${@:3}"
        json ".verified and .path.provider == \"$2\""
    done <<'END'
send latency
write latency
write bandwidth
read rate
compare_swap rate
END
    expect 0 "$1" "$2" copy "$new/bin/rdmux" "$address" --paths "$2" --as "from-$2" "${@:3}"
    cmp "$new/bin/rdmux" "$scratch/received/from-$2" || fail 'what was copied is not the same'
}

# a_path SERVER CLIENT PATH OPTION...
a_path() {
    rm -rf "$scratch/received"
    mkdir "$scratch/received"
    start_server "$1" "$3" --receive "$scratch/received" "${@:4}"
    they_work "$2" "$3" "${@:4}"
}

# a_reason SERVER CLIENT PATH REASON: the path is not chosen, the explanation gives the reason, and
# another path works.
a_reason() {
    local no_path=3
    [[ $2 == "$new" ]] || no_path=1 # of a command that had no status of its own for it
    start_server "$1" "$3"
    expect "$no_path" "$2" "$3" explain "$address" --paths "$3" --json
    json ".chosen == null and ([.candidates[] | select(.provider == \"$3\")] | length > 0 and
          all(.reason == \"$4\" and (.text | test(\"version\"))))"
    expect "$no_path" "$2" "$3" perf "$address" --paths "$3" --op send --test latency --wait sleep --iterations 10
    grep -q 'NO_PATH' "$scratch/err" || fail "$(cat "$scratch/err")"
    expect 0 "$2" "$3" perf "$address" --op send --test latency --wait sleep --iterations 20 --verify --json
    json ".verified and .path.provider != \"$3\""
}

# ------------------------------------------------------------------------------------------ the library

# an_old_program PATH OLD: linked with the old library, run with the new one, at both ends.
an_old_program() {
    export LD_LIBRARY_PATH=$new/lib
    [[ $(ldd "$2/bin/rdmux") == *" $new/lib/librdmux.so"* ]] || fail "$(ldd "$2/bin/rdmux")"
    a_path "$2" "$2" "$1"
}

# a_plugin LIBRARY PLUGIN: the library of one tree, with only the plug-in of another tree, either
# has the providers or reports why not; if it has them, they work with the library's own.
a_plugin() {
    local mixed=$scratch/mixed link reasons
    rm -rf "$mixed"
    mkdir -p "$mixed/bin" "$mixed/lib/rdmux"
    cp "$1/bin/rdmux" "$mixed/bin/"
    cp -P "$1"/lib/librdmux.so* "$mixed/lib/"
    cp "$2/lib/rdmux/rdmux-verbs.so" "$mixed/lib/rdmux/"
    export LD_LIBRARY_PATH=$mixed/lib
    for link in ib roce iwarp; do
        expect 0 "$mixed" "$link" info --json
        reasons=$(jq -r "[.paths[] | select(.provider == \"$link\" or .reason == \"BAD_PLUGIN\") |
            \"\(.reason) \(.text != \"\")\"] | unique | join(\",\")" "$scratch/out")
        case $reasons in
        'USABLE true') a_path "$mixed" "$mixed" "$link" ;;
        'BAD_PLUGIN true') ;;
        *) fail "it is neither loaded nor refused with a reason: $reasons: $(cat "$scratch/out")" ;;
        esac
    done
}

# the_interface_has_only_additions OLD SOURCE
the_interface_has_only_additions() {
    local status=0
    abidiff --drop-private-types --no-added-syms --suppressions "$here/abi.suppressions" \
        --headers-dir1 "$2/api/include" --headers-dir2 "$root/api/include" \
        "$1/lib/librdmux.so.0" "$new/lib/librdmux.so.0" || status=$?
    ((status == 0)) || fail "abidiff: status $status"
}

# ----------------------------------------------------------------------------------------- the versions

# build_mark COMMIT: builds the tree of this commit, its library, command and plug-in, in
# build/compat/COMMIT, once for all callers.
build_mark() {
    local folder=$root/build/compat/$1
    mkdir -p "$folder"
    exec 8>"$folder/lock"
    flock 8
    [[ ! -e $folder/done ]] || return 0
    rm -rf "$folder/source" "$folder/build"
    mkdir "$folder/source"
    git -C "$root" archive "$1" | tar -x -C "$folder/source"
    cmake -S "$folder/source" -B "$folder/build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG='-O0 -g' -DRDMUX_TESTS=OFF \
        -DRDMUX_EXAMPLES=OFF 8>&-
    cmake --build "$folder/build" --parallel "$jobs" 8>&-
    touch "$folder/done"
}

has_adapters() {
    [[ -e $new/lib/libsimverbs.so && -e $new/lib/rdmux/rdmux-verbs.so ]]
}

# try_mark NAME COMMIT PATH=REASON...
try_mark() {
    local name=$1 commit=$2 path reason entry
    local source=$root/build/compat/$2/source old=$root/build/compat/$2/build
    shift 2
    if ! git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null; then
        skip "$name and this version" "the history has no $commit: this is a tarball or a shallow clone"
        return
    fi
    build_mark "$commit" >"$scratch/build.log" 2>&1 || {
        tap "$name builds" sh -c "tail -n 30 '$scratch/build.log'; exit 1"
        return
    }
    for path in tcp shm ib roce iwarp; do
        reason=
        for entry; do
            [[ $entry != "$path="* ]] || reason=${entry#*=}
        done
        if [[ $path != tcp && $path != shm ]] && ! has_adapters; then
            skip "$name: $path" 'the simulated adapters or the plug-in were not built'
        elif [[ -n $reason ]]; then
            check "$name: an old client gets the reason $reason over $path" a_reason "$new" "$old" "$path" "$reason"
            check "$name: a new client gets the reason $reason over $path" a_reason "$old" "$new" "$path" "$reason"
        else
            check "$name: an old client works with a new server over $path" a_path "$new" "$old" "$path"
            check "$name: a new client works with an old server over $path" a_path "$old" "$new" "$path"
        fi
    done
    local psk=(--auth psk --key-file "$scratch/keys")
    check "$name: an old client works with a new server over tcp, with keys" a_path "$new" "$old" tcp "${psk[@]}"
    check "$name: a new client works with an old server over tcp, with keys" a_path "$old" "$new" tcp "${psk[@]}"
    check "$name: an old program works with the new library over tcp" an_old_program tcp "$old"
    check "$name: an old program works with the new library over shm" an_old_program shm "$old"
    if has_adapters; then
        check "$name: an old plug-in works with the new library, or is refused" a_plugin "$new" "$old"
        check "$name: a new plug-in works with the old library, or is refused" a_plugin "$old" "$new"
    else
        skip "$name: plug-ins" 'the simulated adapters or the plug-in were not built'
    fi
    if have abidiff; then
        check "$name: the interface has only additions" the_interface_has_only_additions "$old" "$source"
    else
        skip "$name: the interface has only additions" 'abidiff (abigail-tools) is not installed'
    fi
}

printf 'anna:%s\n' "$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')" >"$scratch/keys"
chmod 600 "$scratch/keys"

while read -r -a mark <&9; do
    [[ ${#mark[@]} == 0 || ${mark[0]} == '#'* ]] || try_mark "${mark[@]}"
done 9<"$here/marks"

tap_end
