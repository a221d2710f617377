#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Mutations of rdmux itself: edits a line of a copy of one source, compiles it, links it with the
# other objects of build/dev, and runs the tests that cover the file, most likely first, until one
# fails. Prints the share of caught mutants, and the survivors with file, line and edit. README.md
# explains how to read them.
set -euo pipefail
shopt -s extglob
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
# shellcheck source=tests/mutation.sh
. tests/mutation.sh

usage() {
    cat <<'END'
usage: tests/mutants/source.sh [option...]

  --count N     how many mutants (default 40), spread evenly over the folders
  --seed N      which ones (default 1)
  --file REGEX  only in files whose name matches, such as '^shm/'
  --edit FILE:LINE:OPERATOR
                this one, as a report names it
  --least P     fail if fewer than P percent are caught (default 0)
  --work DIR    keeps the results there, a line each as they come, and goes on with those that are missing
  --jobs N      mutants tried side by side (default 2)
  --list        print the edits that were chosen and end

build/dev is brought up to date first; nothing else may build there meanwhile.
END
}

count=40 seed=1 files='.' only='' work='' list=no least=0 jobs=2
while (($# > 0)); do
    case $1 in
    --count) count=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    --file) files=$2 && shift ;;
    --edit) only=$2 && shift ;;
    --least) least=$2 && shift ;;
    --work) work=$2 && shift ;;
    --jobs) jobs=$2 && shift ;;
    --list) list=yes ;;
    --help)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done

# All edits in execution order: one of each folder in turn, random within a folder.
edits() {
    # shellcheck disable=SC2046
    awk -f tests/mutants/source.awk $(project_files 'api/*.c' 'negotiation/*.c' 'providers/*.c' 'tcp_fallback/*.c' 'shm/*.c' \
        'verbs/*.c' 'roce/*.c' 'iwarp/*.c' | grep -E "$files") |
        awk -F'\t' -v seed="$seed" -v only="$only" '
            BEGIN { srand(seed) }
            only != "" && only != $1 ":" $2 ":" $3 { next }
            { split($1, folder, "/"); printf "%s\t%.9f\t%s\n", folder[1], rand(), $0 }' |
        sort -k1,1 -k2,2 | awk -F'\t' '{ print ++turn[$1] "\t" $0 }' | sort -s -n -k1,1 | cut -f4-
}

if [[ $list == yes ]]; then
    edits | head -n "$count" || true
    exit 0
fi

mutation_scratch source-mutants
[[ -n $work ]] || work=$scratch/work
mkdir -p "$work"
touch "$work/results" "$work/times"
build=$root/build/dev
RDMUX_BUILD=$build
unset RDMUX_PROVIDER_DIR RDMUX_PATHS "${!CMOCKA_@}"
export CMOCKA_MESSAGE_OUTPUT=TAP
if ! { [[ -e $build/CMakeCache.txt ]] || cmake --preset dev; } >"$scratch/build.log" 2>&1 ||
    ! cmake --build "$build" -j"$jobs" >"$scratch/build.log" 2>&1; then
    tail -n 20 "$scratch/build.log"
    die 'build/dev does not build'
fi

# ------------------------------------------------------------------------------------------- building

# product_of FILE: prints the product that FILE is compiled into.
product_of() {
    if [[ $1 =~ ^(verbs|roce|iwarp)/ ]]; then echo rdmux_verbs; else echo rdmux; fi
}

# compile COPY FILE OUT: compiles the copy as the library or the plug-in compiles FILE.
compile() {
    mutation_compile "$(product_of "$2")" "$2" "$1" "$3" "-I$root/$(dirname "$2")"
}

# link FOLDER TARGET OUT: links the target with the mutated object in place of its own.
link() {
    mutation_link "$2" "$1/objects" "$3" >>"$1/log" 2>&1
}

# ------------------------------------------------------------------------------------------- the tests

# These test timing, so they fail on a loaded machine regardless of the mutation.
readonly unhurried='^test_(liveness|threads|listener.*|handover|fairness|.*_flood)$'

# seconds NAME: its duration without an edit.
seconds() {
    awk -F'\t' -v name="$1" '$1 == name { time = $2 } END { print time == "" ? 1 : time }' "$work/times"
}

# The unit tests of a file's folder: first those whose name shares a word with the file's, then the
# quick ones.
units_of() {
    local pattern name word likely stem
    case $1 in
    negotiation/*) pattern='offer|match|handshake|explain|message|frame|recorded|accept|connect|no_path|tls|auth|filter|grants' ;;
    tcp_fallback/*) pattern='tcp|credit|stream' ;;
    shm/*) pattern='shm' ;;
    providers/*) pattern='registry|loader|target|credit|software|plugin|stream|ports|srq|mr' ;;
    verbs/* | roce/* | iwarp/*) pattern='verbs|roce|iwarp|device' ;;
    *) pattern='.' ;;
    esac
    stem=$(basename "$1" .c)
    find "$build/tests/unit" -maxdepth 1 -name 'test_*' -type f -perm -u+x -printf '%f\n' | sort | grep -vE "$unhurried" |
        grep -E "$pattern" |
        if [[ $1 == api/* ]]; then grep -vE 'verbs|roce|iwarp|shm_|tcp_|offer|match'; else cat; fi |
        while IFS= read -r name; do
            likely=1
            for word in ${stem//_/ }; do
                [[ $name != *"$word"* ]] || likely=0
            done
            printf '%d\t%s\t%s\n' "$likely" "$(seconds "$name")" "$name"
        done | sort -n -k1,1 -k2,2 | cut -f1,3
}

# conformance FOLDER PROVIDER [NAME=VALUE...]
conformance() {
    printf 'env LD_LIBRARY_PATH=%s/lib' "$1"
    printf ' %s' "${@:3}"
    printf ' %s conformance --quick --patience 4 --format tap --seed 1 --provider %s\n' "$build/bin/rdmux" "$2"
}

# Files that concern peers without rdmux.
readonly plain_files='^verbs/|plain|^api/(listener|connect)\.'

# models FOLDER LINK: random requests over a simulated adapter, without and with a fault in the
# middle.
models() {
    local programs=$build/tests/sim_verbs plugin=$1/lib/rdmux/rdmux-verbs.so
    echo "$programs/random_model --plugin $plugin --link $2 --brief --seeds 256"
    echo "$programs/random_faults $plugin 500 1 $2"
}

# Whole programs over the mutated library and plug-in, one a line.
wholes_of() {
    local link sim="LD_PRELOAD=$build/lib/libsimverbs.so"
    case $1 in
    tcp_fallback/*) conformance "$2" tcp ;;
    shm/*) conformance "$2" shm ;;
    roce/*)
        models "$2" roce
        conformance "$2" roce "$sim" SIM_VERBS=link=roce,freedoms=all
        ;;
    iwarp/*)
        models "$2" iwarp
        conformance "$2" iwarp "$sim" SIM_VERBS=link=iwarp,freedoms=all
        ;;
    verbs/*)
        models "$2" roce
        conformance "$2" roce "$sim" SIM_VERBS=link=roce,freedoms=all
        models "$2" iwarp
        conformance "$2" iwarp "$sim" SIM_VERBS=link=iwarp,freedoms=all
        ;;
    *)
        conformance "$2" tcp
        conformance "$2" shm
        ;;
    esac
    # The plug-in is found and loaded.
    [[ $1 != providers/* ]] || echo "$(conformance "$2" roce "$sim" SIM_VERBS=link=roce) --rules N.1"
    if [[ $1 =~ $plain_files ]]; then
        for link in roce iwarp; do
            echo "env LD_LIBRARY_PATH=$2/lib $sim SIM_VERBS=net=mutants-$BASHPID,link=$link $build/tests/interop/test_rdmacm"
        done
    fi
}

# limit_of NAME: seconds that a test may take. Only a hang exceeds ten times its duration without an
# edit plus a minute.
limit_of() {
    awk -F'\t' -v name="$1" '$1 == name { time = $2 } END { print time == "" ? 600 : 60 + int(time / 100) }' "$work/times"
}

# first_failure FOLDER COMMAND...: prints the first failed case of a program that prints TAP; fails
# if there is none and the program succeeds.
first_failure() {
    mutation_first_failure "$(limit_of "$(basename "$2")")" "$1/tap" "${@:2}"
}

# fails FOLDER COMMAND...: as first_failure, of two runs that both fail, as a loaded machine makes
# one fail by chance.
fails() {
    first_failure "$@" >/dev/null && first_failure "$@"
}

is_left_out() {
    grep -qxF "$1" "$work/left_out"
}

# try_units FOLDER LIKELY: runs the file's unit tests that are likely (0) or unlikely (1) to notice
# the edit.
try_units() {
    local name likely why
    while IFS=$'\t' read -r likely name <&5; do
        [[ $likely == "$2" ]] || continue
        ! is_left_out "$name" || continue
        link "$1" "$name" "$1/$name" || continue
        if why=$(fails "$1" "$1/$name"); then
            mutation_verdict caught "$name: $why"
            return 0
        fi
        rm -f "$1/$name"
    done 5< <(units_of "$(<"$1/file")")
    return 1
}

try_wholes() {
    local why product
    local -a command
    mkdir -p "$1/lib/rdmux"
    cp "$build/lib/librdmux.so.0" "$1/lib/librdmux.so.0"
    cp "$build/lib/rdmux/rdmux-verbs.so" "$1/lib/rdmux/" 2>/dev/null || true
    product=$(product_of "$(<"$1/file")")
    if [[ $product == rdmux_verbs ]]; then
        link "$1" "$product" "$1/lib/rdmux/rdmux-verbs.so" || return 1
    else
        link "$1" "$product" "$1/lib/librdmux.so.0" || return 1
    fi
    while read -r -a command <&5; do
        ! is_left_out "${command[*]//$1/FOLDER}" || continue
        if why=$(fails "$1" "${command[@]}"); then
            mutation_verdict caught "${command[*]: -1}, ${command[*]: -2:1}: $why"
            return 0
        fi
    done 5< <(wholes_of "$(<"$1/file")" "$1")
    return 1
}

# judge FOLDER: compiles and tests; prints the verdict.
judge() {
    local folder=$1 file mutant
    file=$(<"$folder/file")
    mutant=$(mutation_object "$folder/objects" "$file")
    compile "$folder/mutant.c" "$file" "$mutant" >"$folder/log" 2>&1 || {
        mutation_verdict unbuilt "$file"
        return
    }
    compile "$folder/original.c" "$file" "$folder/original.o" >>"$folder/log" 2>&1
    # An edit that gives the same code is no mutant.
    objcopy --strip-debug "$mutant" "$folder/mutant.bare"
    objcopy --strip-debug "$folder/original.o" "$folder/original.bare"
    if cmp -s "$folder/mutant.bare" "$folder/original.bare"; then
        echo 'equivalent: the same code'
        return
    fi
    try_units "$folder" 0 || try_wholes "$folder" || try_units "$folder" 1 || mutation_verdict survived
}

# A test that fails without an edit catches nothing; durations of the others decide their order.
find_out() {
    local name begin line folder=$scratch/whole
    local -a command
    mkdir -p "$folder/lib/rdmux"
    cp "$build/lib/librdmux.so.0" "$folder/lib/"
    cp "$build/lib/rdmux/rdmux-verbs.so" "$folder/lib/rdmux/" 2>/dev/null || true
    : >"$scratch/left_out"
    while IFS= read -r name <&5; do
        begin=${EPOCHREALTIME/./}
        ! first_failure "$folder" "$build/tests/unit/$name" >/dev/null || echo "$name" >>"$scratch/left_out"
        printf '%s\t%d\n' "$name" $(((${EPOCHREALTIME/./} - begin) / 1000)) >>"$work/times"
    done 5< <(edits | cut -d/ -f1 | sort -u | while IFS= read -r line; do units_of "$line/any.c"; done | cut -f2 | sort -u)
    while read -r -a command <&5; do
        ! first_failure "$folder" "${command[@]}" >/dev/null || echo "${command[*]//$folder/FOLDER}" >>"$scratch/left_out"
    done 5< <(edits | cut -d/ -f1 | sort -u | while IFS= read -r line; do wholes_of "$line/any.c" "$folder"; done | sort -u)
    mv "$scratch/left_out" "$work/left_out"
}

[[ -e $work/left_out ]] || find_out
sed 's/^/# left out, as it fails without an edit: /' "$work/left_out"

# one FILE LINE OPERATOR TEXT: writes a line of the results, in one write.
one() {
    local folder before verdict
    folder=$(mktemp -d "$scratch/one.XXXXXX")
    mkdir "$folder/objects"
    echo "$1" >"$folder/file"
    cp "$1" "$folder/original.c"
    awk -v line="$2" 'NR == FNR { text = $0; next } FNR == line { print text; next } { print }' \
        <(printf '%s\n' "$4") "$1" >"$folder/mutant.c"
    verdict=$(judge "$folder") || true
    before=$(sed -n "${2}s/^ *//p" "$1")
    printf '%s:%d:%s\t%s => %s\t%s\n' "$1" "$2" "$3" "$before" "${4##+( )}" "$verdict" >>"$work/results"
    rm -rf "$folder"
}

# count_of RESULT: prints how many results have this verdict.
count_of() {
    cut -f3 "$work/results" | grep -c "^${mutation_words[$1]}" || true
}

# Some chosen edits do not build and are no mutants, so more edits are chosen than wanted.
edits >"$work/edits"
chosen=0
while IFS=$'\t' read -r file line operator text <&4; do
    mutation_slot "$jobs"
    chosen=$((chosen + 1))
    ((chosen - $(count_of unbuilt) <= count)) || break
    ! grep -qF "$file:$line:$operator"$'\t' "$work/results" || continue
    mutation_start one "$file" "$line" "$operator" "$text"
done 4<"$work/edits"
mutation_wait

caught=$(count_of caught)
survived=$(count_of survived)
same=$(cut -f3 "$work/results" | grep -c '^equivalent' || true)
sed -nE "s/^(.*)\t(.*)\t((${mutation_words[caught]}|${mutation_words[survived]}).*)\$/# \1: \2: \3/p" "$work/results"
((caught + survived > 0)) || die 'no edit was chosen'
tap "$caught of $((caught + survived)) mutants are caught, at least $least % (seed $seed; $same more are the same code)" \
    test $((100 * caught)) -ge $((least * (caught + survived)))
tap_end
