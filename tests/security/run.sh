#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Checks the promises of docs/SECURITY.md from outside: the built files' hardening, the command with
# keys and certificates, the conformance suite between authenticated peers. With --thorough it also
# runs the programs of tests/unit whose subject is security again. Prints TAP.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
# shellcheck source=tests/mutation.sh
. "$root/tests/mutation.sh"
build=${RDMUX_BUILD:-$root/build/dev}
prefix=${RDMUX_PREFIX:-$build}
level=${RDMUX_TEST_LEVEL:-normal}
rdmux=$prefix/bin/rdmux
limit=240
unset RDMUX_PATHS RDMUX_LOG

[[ -x $rdmux ]] || die "there is no command $rdmux; build it, or name its tree in RDMUX_PREFIX"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-security.XXXXXX")
started=()

# end_processes: ends the processes that this shell has started.
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

# case_of COMMAND...: a case for tap, in a subshell that ends the processes it started.
case_of() {
    started=()
    trap end_processes EXIT
    "$@"
}

# -------------------------------------------------------------------------------------- the built files

library=$(readlink -f "$prefix/lib/librdmux.so" || true)
[[ -n $library && -e $library ]] || library=$(find "$prefix" -name 'librdmux.so*' -type f -print -quit)
plugin=$(find "$prefix" -name rdmux-verbs.so -type f -print -quit)

# has FILE PATTERN OPTION...: readelf's output for the file matches the pattern. Reads all output,
# as readelf fails if it is cut off.
has() {
    readelf -W "${@:3}" "$1" | grep -E -- "$2" >/dev/null
}

binds_at_start() {
    has "$1" BIND_NOW --dynamic || fail "$1: symbols are bound lazily"
    has "$1" GNU_RELRO --segments || fail "$1: relocations stay writable"
}

has_no_executable_stack() {
    has "$1" 'GNU_STACK .* RW +0x' --segments || fail "$1: the stack is executable"
}

has_no_text_relocations() {
    ! has "$1" TEXTREL --dynamic || fail "$1: has text relocations"
    has "$1" 'Type: +DYN ' --file-header || fail "$1: is not position independent"
}

guards_its_stack() {
    has "$1" __stack_chk_fail --dyn-syms || fail "$1: no stack protector"
}

checks_its_copies() {
    has "$1" '__(snprintf|vsnprintf|memcpy|printf|fprintf)_chk' --dyn-syms ||
        fail "$1: no checked call of libc"
}

exports_only_its_own() {
    local other
    other=$(readelf -W --dyn-syms "$1" |
        awk '$7 != "UND" && $5 == "GLOBAL" && $4 == "FUNC" && $8 !~ /^rdmux_/ { print $8 }')
    [[ -z $other ]] || fail "$1: exports $other"
}

reads_environment_safely() {
    ! has "$1" ' UND getenv(@|$)' --dyn-syms ||
        fail "$1: calls getenv, which obeys the user of a setuid program; use secure_getenv"
}

no_source_reads_it_otherwise() {
    ! grep -rnwE --include='*.[ch]' '(getenv|environ)' \
        --exclude=system_posix.c "$root"/{api,negotiation,providers,verbs,shm,stream,tcp_fallback,roce,iwarp} ||
        fail "use rdmux_environment"
}

if have readelf; then
    for file in "$library" "$rdmux" ${plugin:+"$plugin"}; do
        name=${file##*/}
        tap "$name: relocations are read-only, and symbols bound at start" binds_at_start "$file"
        tap "$name: the stack is not executable" has_no_executable_stack "$file"
        tap "$name: is position independent" has_no_text_relocations "$file"
        tap "$name: has a stack protector" guards_its_stack "$file"
    done
    for file in "$library" "$rdmux"; do
        tap "${file##*/}: calls of libc are checked" checks_its_copies "$file"
    done
    for file in "$library" ${plugin:+"$plugin"}; do
        tap "${file##*/}: reads no environment that a stranger may set" reads_environment_safely "$file"
    done
    tap "${library##*/}: exports nothing but its interface" exports_only_its_own "$library"
else
    tap_skip 'the built files are hardened' 'readelf is not installed'
fi

tap 'no source of the library reads the environment but by rdmux_environment()' no_source_reads_it_otherwise

# -------------------------------------------------------------------------- the promises and their tests

# known PROGRAM CASE: the test that docs/SECURITY.md names exists. CASE may be empty.
known() {
    local program=$1 case=$2 source
    case $program in
    test_*)
        for source in "$root"/tests/{unit,sim_verbs,interop}/"$program.c"; do
            [[ -e $source ]] || continue
            [[ -z $case ]] || grep -qE "\\b${case// /_}\\b" "$source" || return
            return 0
        done
        return 1
        ;;
    conformance\ *) grep -qF "RULE(\"${program#* }\"," "$root/tests/conformance/rules.def" ;;
    fuzz\ *) [[ -e $root/tests/fuzz/fuzz_${program#* }.c ]] ;;
    *)
        source=$root/tests/$program
        [[ -f $source ]] || return
        [[ -z $case ]] || grep -qF -e "$case" "$source"
        ;;
    esac
}

every_promise_has_its_test() {
    local program case line count=0 missing=0
    while IFS='|' read -r program case line; do
        count=$((count + 1))
        known "$program" "$case" || {
            echo "docs/SECURITY.md:$line: there is no test '$program${case:+: $case}'"
            missing=$((missing + 1))
        }
    done < <(awk -f "$here/promises.awk" "$root/docs/SECURITY.md")
    ((count > 0)) || fail 'docs/SECURITY.md has no table "Promises and their tests"'
    ((missing == 0))
}

tap 'every promise of docs/SECURITY.md names tests that exist' every_promise_has_its_test

# The lists of planted mistakes run by hand. Here each edit must still apply.
# edit_applies NAME TARGETS FILE EDIT
edit_applies() {
    if ! { cp "$root/$3" "$scratch/edited" && mutation_edit_sed "$scratch/edited" "$4"; }; then
        echo "$1: $(mutation_verdict stale "$3")"
        return 1
    fi
}

every_edit_applies() {
    local list stale=0
    for list in "$root"/tests/{security,fuzz}/checks.def; do
        mutation_each "$list" edit_applies
        stale=$((stale + mutation_failed))
        ((mutation_count > 0)) || fail "$list is empty"
    done
    ((stale == 0))
}

tap 'each edit of the lists applies to its source' every_edit_applies

# ------------------------------------------------------------------------------------------ the command

keys=$scratch/keys
wrong=$scratch/wrong

make_keys() {
    printf 'anna:%s\n' "$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')" >"$1"
    chmod 600 "$1"
}
make_keys "$keys"
make_keys "$wrong"

# start_server ARGUMENT...: serves on a free port; sets address.
start_server() {
    local log
    log=$(mktemp "$scratch/server.XXXXXX")
    "$rdmux" serve 127.0.0.1:0 "$@" >"$log" 2>"$log.err" </dev/null &
    started+=("$!")
    local deadline=$((SECONDS + limit))
    until [[ -s $log ]] && read -r _ _ address <"$log"; do
        if ((SECONDS >= deadline)) || ! kill -0 "$!" 2>/dev/null; then
            fail "the server did not start: $(cat "$log" "$log.err")"
        fi
        sleep 0.02
    done
}

# expect STATUS TEXT ARGUMENT...: the command ends with the status, and its output has the text, over
# any number of lines.
expect() {
    local status=0 output words
    output=$(timeout --kill-after=5 "$limit" "$rdmux" "${@:3}" 2>&1) || status=$?
    [[ $status == "$1" ]] || fail "rdmux ${*:3}: status $status instead of $1: $output"
    words=$(tr -s '[:space:]' ' ' <<<"$output")
    [[ $words == *$2* ]] || fail "rdmux ${*:3}: no \"$2\" in: $output"
}

psk=(--auth psk --key-file)

with_the_key() {
    start_server "${psk[@]}" "$keys"
    expect 0 'why shm memory [0-9]* CHOSEN: ' explain "$address" "${psk[@]}" "$keys"
    expect 0 '"security":"encrypted"' explain "$address" "${psk[@]}" "$keys" --json
    expect 0 '' perf "$address" "${psk[@]}" "$keys" --op send --test latency --iterations 100 --paths tcp
}

without_a_key() {
    start_server "${psk[@]}" "$keys"
    expect 1 'the peer asks for authentication by a pre-shared key; set' explain "$address"
    expect 1 'RDMUX_AUTH' perf "$address" --op send --test latency --iterations 10
}

with_a_wrong_key() {
    start_server "${psk[@]}" "$keys"
    expect 1 'the peer has refused identity "anna"' explain "$address" "${psk[@]}" "$wrong"
}

to_a_server_without() {
    start_server
    expect 1 'the peer not at all; over there, set' explain "$address" "${psk[@]}" "$keys"
}

copy_with_the_key() {
    mkdir "$scratch/received"
    head -c 300000 /dev/urandom >"$scratch/file"
    start_server "${psk[@]}" "$keys" --receive "$scratch/received"
    expect 0 '' copy "$scratch/file" "$address" "${psk[@]}" "$keys"
    cmp "$scratch/file" "$scratch/received/file"
}

tcp_meets_a_demand_for_encryption() {
    local demand=(--require-encryption --trusted none)
    start_server "${psk[@]}" "$keys" "${demand[@]}"
    expect 0 'why tcp [0-9]* CHOSEN: ' explain "$address" "${psk[@]}" "$keys" "${demand[@]}"
    expect 0 'encrypted: TLS 1.3, by the two processes and not by their kernels' \
        explain "$address" "${psk[@]}" "$keys" "${demand[@]}"
    expect 0 '"security":"encrypted"' explain "$address" "${psk[@]}" "$keys" "${demand[@]}" --json
    expect 3 'NOT_ENCRYPTED' explain "$address" "${psk[@]}" "$keys" "${demand[@]}" --paths shm
    expect 0 '' perf "$address" "${psk[@]}" "$keys" "${demand[@]}" --op write --test bandwidth \
        --iterations 100
}

encryption_of_the_server_counts_as_well() {
    start_server "${psk[@]}" "$keys" --require-encryption --trusted none
    expect 3 'the acceptor requires encryption' explain "$address" "${psk[@]}" "$keys" --paths shm
    expect 0 'why tcp [0-9]* CHOSEN: ' explain "$address" "${psk[@]}" "$keys"
}

nothing_is_encrypted_without_keys() {
    start_server
    expect 0 '"security":"token"' explain "$address" --paths tcp --json
}

a_peer_that_is_not_listed() {
    start_server "${psk[@]}" "$keys" --peer bert --peer carl
    expect 1 'RDMUX_AUTH' explain "$address" "${psk[@]}" "$keys"
}

a_key_that_others_may_read() {
    cp "$keys" "$scratch/open"
    chmod 644 "$scratch/open"
    expect 2 'is open to other users (mode 644); chmod 600' explain 127.0.0.1 "${psk[@]}" "$scratch/open"
}

wrong_options() {
    expect 2 'of no use without --auth' explain 127.0.0.1 --key-file "$keys"
    expect 2 'auth.key_file is missing' explain 127.0.0.1 --auth psk
    expect 2 'auth.cert_file is missing' explain 127.0.0.1 --auth cert --key-file "$keys"
    expect 2 'does not name the providers' explain 127.0.0.1 "${psk[@]}" "$keys" --trusted '!tcp'
    expect 2 'is not in' explain 127.0.0.1 "${psk[@]}" "$keys" --identity nobody
    expect 1 'auth.key_file: cannot open' explain 127.0.0.1 "${psk[@]}" "$scratch/absent"
}

# certificate NAME SUBJECT EXTENSION: signed by $scratch/ca.
certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$scratch/$1.key" \
        -subj "/CN=$2" -out "$scratch/$1.csr"
    openssl x509 -req -in "$scratch/$1.csr" -CA "$scratch/ca.pem" -CAkey "$scratch/ca.key" \
        -days 2 -out "$scratch/$1.pem" -extfile <(printf '%s\n' "$3")
    chmod 600 "$scratch/$1.key"
} 2>/dev/null

certificates() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca \
        -keyout "$scratch/ca.key" -out "$scratch/ca.pem" 2>/dev/null
    certificate server server 'subjectAltName=IP:127.0.0.1,DNS:server.example'
    certificate client client 'subjectAltName=DNS:client.example'
    certificate elsewhere elsewhere 'subjectAltName=IP:192.0.2.1'
    local client=(--auth cert --cert-file "$scratch/client.pem" --key-file "$scratch/client.key"
        --ca-file "$scratch/ca.pem")
    start_server --auth cert --cert-file "$scratch/server.pem" --key-file "$scratch/server.key" \
        --ca-file "$scratch/ca.pem" --peer client.example
    expect 0 'why shm memory [0-9]* CHOSEN: ' explain "$address" "${client[@]}"
    expect 1 'the peer asks for authentication by certificates; set' explain "$address"
    expect 1 'set both alike' explain "$address" "${psk[@]}" "$keys"
    start_server --auth cert --cert-file "$scratch/elsewhere.pem" \
        --key-file "$scratch/elsewhere.key" --ca-file "$scratch/ca.pem"
    expect 1 'not of 127.0.0.1' explain "$address" "${client[@]}"
}

tap 'with the key the command works over every path' case_of with_the_key
tap 'without a key the command says what to set' case_of without_a_key
tap 'with a wrong key the command is refused' case_of with_a_wrong_key
tap 'with a key the command does not talk to a server without' case_of to_a_server_without
tap 'rdmux copy authenticates' case_of copy_with_the_key
tap 'tcp meets a demand for encryption' case_of tcp_meets_a_demand_for_encryption
tap 'without keys tcp is guarded by tokens alone' case_of nothing_is_encrypted_without_keys
tap "a server's demand for encryption counts as well" case_of encryption_of_the_server_counts_as_well
tap 'a peer that is not listed is refused' case_of a_peer_that_is_not_listed
tap 'a key that others may read is refused' case_of a_key_that_others_may_read
tap 'options that do not belong together are named' case_of wrong_options
if have openssl; then
    tap 'the command works with certificates that openssl makes' case_of certificates
else
    tap_skip 'the command works with certificates that openssl makes' 'openssl is not installed'
fi

# --------------------------------------------------------------------- every rule, with authentication

conforms() {
    "$rdmux" conformance --provider "$1" --quick --patience 4 --seed 1 --key-file "$keys" "${@:2}"
}

# Over shm the control channel alone is encrypted: the chapters about set-up, end, revocation, and wake-ups. Over
# tcp the data is, too.
if [[ $level != quick ]]; then
    control=()
    [[ $level == thorough ]] || control=(--rules '7,8,9,10,11,15,N')
    tap 'shm keeps the rules between peers that authenticate' conforms shm "${control[@]}"
    tap 'tcp keeps the rules between peers that authenticate' conforms tcp
fi

# ------------------------------------------------------------------------------- tests of single parts

# cases_of PROGRAM: counts each of its cases as a case of this group.
cases_of() {
    local program=$build/tests/unit/$1 status=0 line ran=0 output
    if [[ ! -x $program ]]; then
        tap_skip "$1" 'it is not built: cmocka or OpenSSL is missing'
        return
    fi
    output=$(CMOCKA_MESSAGE_OUTPUT=TAP "$program" 2>"$scratch/errors") || status=$?
    while IFS= read -r line; do
        case $line in
        ok\ *' - '*) tap "${1#test_}: ${line#* - }" true ;;
        not\ ok\ *' - '*) tap "${1#test_}: ${line#* - }" fail "$output" "$(cat "$scratch/errors")" ;;
        '# '*[0-9]*' '*) printf '%s\n' "$line" ;;
        *) continue ;;
        esac
        ran=1
    done <<<"$output"
    ((ran == 1 && status == 0)) || tap "$1 runs to its end" fail "status $status: $output"
}

if [[ $level == thorough ]]; then
    for program in test_auth_keys test_tls test_stream test_auth test_auth_path test_tcp_encrypted \
        test_turns test_shake test_auth_flood test_introduced_flood test_grants test_constant_time \
        test_environment test_plugin_trust test_secrets; do
        cases_of "$program"
    done
fi

tap_end
