#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Third-party plug-ins, built against an installed rdmux: a good provider works, bad ones are
# refused, each with its reason. RDMUX_PREFIX is the installed rdmux.
set -euo pipefail
: "${RDMUX_PREFIX:?the folder rdmux is installed in}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/lib.sh
. "$here/../../scripts/lib.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
build=$scratch/build
user=$build/plugin_user
unset RDMUX_PROVIDER_DIR RDMUX_PATHS

plugins_build() {
    cmake -S "$here" -B "$build" -DCMAKE_PREFIX_PATH="$RDMUX_PREFIX" \
        -DCMAKE_BUILD_TYPE=RelWithDebInfo &&
        cmake --build "$build"
}

toy_builds_alone() {
    cmake -S "$here/toy" -B "$scratch/toy" -DCMAKE_PREFIX_PATH="$RDMUX_PREFIX" &&
        cmake --build "$scratch/toy" && [[ -e $scratch/toy/toy.so ]]
}

comes_by_environment() {
    RDMUX_PROVIDER_DIR=$build/toy "$user" moves toy
}

# Plug-ins in rdmux/ beside librdmux.so are loaded without being named; a copy of the installed tree
# has one there.
comes_by_its_place() {
    cp -r "$RDMUX_PREFIX" "$scratch/installed"
    local library
    library=$(find "$scratch/installed" -name 'librdmux.so.0' -print -quit)
    mkdir -p "${library%/*}/rdmux"
    cp "$build/toy/toy.so" "${library%/*}/rdmux/"
    LD_LIBRARY_PATH=${library%/*} "$user" listed toy
}

one_file_loads_once() {
    RDMUX_PROVIDER_DIR=$build/toy "$user" clean toy "$build/toy/toy.so" "$build/toy/../toy/toy.so"
}

tap 'plug-ins build against the installed package' plugins_build
if [[ ! -x $user ]]; then
    echo 'Bail out! the plug-ins do not build'
    exit 1
fi
rm -f "$build"/libgone.so*
tap 'the toy provider is a project of its own' toy_builds_alone
tap 'a plug-in named by the application is listed' "$user" clean toy "$build/toy/toy.so"
tap 'two processes move data over it' "$user" moves toy "$build/toy/toy.so"
tap 'a plug-in comes by RDMUX_PROVIDER_DIR' comes_by_environment
tap 'a plug-in comes by its place beside the library' comes_by_its_place
tap 'a file named twice is loaded once' one_file_loads_once
tap 'a plug-in for another ABI is refused' \
    "$user" refused "$build/wrong_abi.so" BAD_PLUGIN 'ABI 99'
tap 'a table with a hole is refused' "$user" refused "$build/hole.so" BAD_PLUGIN ep_ping
tap 'a name that is taken is refused' "$user" refused "$build/taken.so" BAD_PLUGIN tcp
tap 'a refused provider leaves the others of its file' "$user" listed toy-two "$build/taken.so"
tap 'a file that is no plug-in is refused' \
    "$user" refused "$build/no_entry.so" BAD_PLUGIN rdmux_plugin
tap 'a plug-in whose library is missing says so' \
    "$user" refused "$build/missing_library.so" NO_LIBRARY libgone.so
tap 'a plug-in that is not there says so' \
    "$user" refused "$scratch/nowhere.so" NO_LIBRARY 'cannot open'
printf '%0200d' 0 >"$scratch/text.so"
tap 'a file that is no library is refused' "$user" refused "$scratch/text.so" BAD_PLUGIN ELF
tap 'a program with its own rdmux refuses a plug-in, which is bound to another one' \
    "${user}_static" refused "$build/toy/toy.so" BAD_PLUGIN 'another copy, librdmux.so'
# loud_runs PROGRAM: the code of loud.so runs when the program opens a fabric.
loud_runs() {
    local status=0
    "$1" listed tcp "$build/loud.so" || status=$?
    ((status == 42))
}
tap 'before any code of the plug-in runs' \
    "${user}_static" refused "$build/loud.so" BAD_PLUGIN 'another copy, librdmux.so'
tap 'as it does with librdmux.so' loud_runs "$user"
tap 'a plug-in of the program is listed' "${user}_own" from toy builtin
tap 'it goes before one of a file, and the log says so' \
    "${user}_own" from toy builtin "$build/toy/toy.so"
tap 'a provider of a file names the file' "$user" from toy toy.so "$build/toy/toy.so"
tap 'two processes move data over a plug-in of the program' "${user}_own" moves toy
tap 'and with rdmux linked in, too' "${user}_own_static" moves toy

# The chapters about the bytes that requests and receives name, and their lengths. A provider of the toy's source
# that insists on more runs them, the toy itself all others; with --thorough each runs all.
readonly strict_chapters=2,3,5,6,12 other_chapters=1,4,7,8,9,10,11,13,14,15,N,F,S

# Runs the commands of the guide in an empty folder.
guide_walks() {
    local folder=$scratch/newcomer guide=$RDMUX_PREFIX/share/doc/rdmux/PROVIDER-GUIDE.md options=' --patience 20 --seed 1'
    [[ ${RDMUX_TEST_LEVEL-} == thorough ]] || options+=" --rules $other_chapters"
    mkdir "$folder"
    # Same patience of the suite with a busy machine as in all other groups.
    awk -v options="$options" '/^```sh walk$/ { on = 1; next } /^```/ { on = 0 }
        on && / --quick$/ { $0 = $0 options } on' "$guide" >"$scratch/walk.sh"
    grep -q -e '--patience' "$scratch/walk.sh" || { echo 'no line runs the suite with --quick' && return 1; }
    (($(grep -c . "$scratch/walk.sh") >= 7)) || { echo 'the guide has no lines to type' && return 1; }
    (cd "$folder" && env -i HOME="$scratch" PATH="$PATH" PREFIX="$RDMUX_PREFIX" \
        bash -e -o pipefail "$scratch/walk.sh") >"$scratch/walk.log" 2>&1 || { cat "$scratch/walk.log" && return 1; }
    grep -q 'NO_DEVICE: myfabric: STEP 1 is not written yet' "$scratch/walk.log" ||
        { cat "$scratch/walk.log" && echo 'rdmux info does not say why the skeleton is not usable' && return 1; }
}

# The skeleton's later steps refuse as cleanly as the first: with a text, without an endpoint.
skeleton_refuses() {
    local output
    cp -r "$here/skeleton" "$scratch/second" &&
        sed -i '/STEP 1: take these/,/fill in my_probe/d; s/out->native = 0;.*/out->native = RDMUX_CAP_SEND;/' \
            "$scratch/second/myfabric.c" &&
        cmake -S "$scratch/second" -B "$scratch/second/build" -DCMAKE_PREFIX_PATH="$RDMUX_PREFIX" &&
        cmake --build "$scratch/second/build" || return 1
    output=$("$RDMUX_PREFIX/bin/rdmux" conformance --plugin "$scratch/second/build/myfabric.so" --rules N.1 --quick \
        --format tap) && { echo 'it passes' && return 1; }
    grep -qE '(CONNECT|PEER)_FAILED.*myfabric: STEP 2, ep_open is not written yet' <<<"$output" || { echo "$output" && return 1; }
}

# Two files on purpose, one to read and one to copy; the helper functions are the same in both
# tables.
tables_agree() {
    local file
    for file in toy/toy.c skeleton/myfabric.c; do
        sed -n '/^\(static \)\?const struct rdmux_provider_ops/,/^};/p' "$here/$file" |
            sed -E '1d; /\.(name|flags|cq_size|ep_size) =/d; s/\b(toy|my)_([a-z_]+),/its \2,/' >"$scratch/table-${file%%/*}"
    done
    (($(wc -l <"$scratch/table-toy") > 35)) && diff "$scratch/table-toy" "$scratch/table-skeleton"
}

tap 'the skeleton has the table of the toy' tables_agree
tap 'the guide leads from an empty folder to a passing provider' guide_walks
tap 'the skeleton refuses step by step, each time with a text' skeleton_refuses

rdmux=$RDMUX_PREFIX/bin/rdmux
if [[ -x $rdmux ]]; then
    # The guide has just run this suite over the same source; with --thorough it runs over an optimised toy, too.
    toy_passes() {
        grep -E '^toy: [0-9]+ rules kept, 0 broken' "$scratch/walk.log" || { echo "the guide's walk has no verdict of toy" && return 1; }
        [[ ${RDMUX_TEST_LEVEL-} != thorough ]] ||
            "$rdmux" conformance --quick --patience 20 --seed 1 --plugin "$build/toy/toy.so" --provider toy
    }
    tap 'the toy provider passes conformance' toy_passes
    # An operation that the path lacks is refused and its rules are "not advertised"; all other rules are
    # judged. sparse_passes LACKING RULE...: the cases of these rules; with --thorough the whole suite.
    sparse_passes() {
        local -a which=()
        [[ ${RDMUX_TEST_LEVEL-} == thorough ]] || which=(--rules "$(IFS=, && echo "${*:2}" | tr -d -)")
        local lacking=$1 rule
        shift
        RDMUX_SPARSE=$lacking "$rdmux" conformance --quick --patience 20 --seed 1 --plugin "$build/sparse.so" --provider sparse \
            "${which[@]}" >"$scratch/sparse" 2>&1 || { cat "$scratch/sparse" && return 1; }
        for rule in "$@"; do # "-2.1" is not advertised, "2.1" is kept
            grep -qE "^${rule#-} .* $([[ $rule == -* ]] && echo 'not advertised' || echo '(pass|native|emulated)')\$" \
                "$scratch/sparse" || { grep "^${rule#-} " "$scratch/sparse"; echo "expected: $rule"; return 1; }
        done
    }
    tap 'a path without messages and reads is judged by the other rules' \
        sparse_passes SEND,SEND_IMM,READ -2.1 -5.1 -2.3 -2.13 3.4 6.6 10.1 2.11 N.1 N.10
    tap 'one without reads, too' sparse_passes READ -2.13 -4.1 2.1 2.3 3.4 7.4 9.1 N.10
    tap 'one that tells by reads alone that writes are placed' \
        sparse_passes PLACED -1.9 -3.4 -3.5 2.6 6.6 10.1 9.2 N.10
    tap 'one that has messages alone' \
        sparse_passes SEND_IMM,WRITE,WRITE_IMM,READ,ATOMICS,PLACED,SRQ,FENCE -2.3 -3.3 -4.1 -2.14 2.1 5.1 7.3 N.10
    tap 'and one that has writes with PLACED alone' \
        sparse_passes SEND,SEND_IMM,READ,WRITE_IMM,ATOMICS,SRQ,FENCE -2.1 -2.11 -4.1 -2.14 3.4 6.6 7.1 N.10
    strict_passes() {
        local -a which=(--rules "$strict_chapters")
        [[ ${RDMUX_TEST_LEVEL-} != thorough ]] || which=()
        "$rdmux" conformance --quick --patience 20 --seed 1 --plugin "$build/strict.so" --provider strict "${which[@]}"
    }
    tap 'one that insists on registered bytes and short messages passes, too' strict_passes
else
    tap_skip 'the toy provider passes conformance' 'rdmux is not installed'
    tap_skip 'the strict provider passes conformance' 'rdmux is not installed'
    tap_skip 'sparse providers pass conformance' 'rdmux is not installed'
fi
tap_end
