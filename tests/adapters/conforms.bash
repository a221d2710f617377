# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
# The conformance suite over an adapter, and cases in a guest, for ofi.sh and ucx.sh. They have lib.sh,
# have set these, and set `wanted`, a pattern or empty, and `scratch`, a folder, before they call.
: "${root:?}" "${build:?}"

# judge NAME COMMAND...: runs the suite, the end of whose command are the arguments; its JSON stays in the
# build's folder conformance/NAME.json. Prints the rules that did not pass, and how many did. Every rule
# that was run has to pass, and some have to be run.
judge() {
    local report=$build/conformance/${1//[^a-z0-9]/-}.json status=0
    mkdir -p "${report%/*}"
    "${@:2}" --json >"$report" || status=$?
    jq -r '[.providers[]?.rules[]] as $rules |
        ($rules[] | select(.status == "fail") |
            "rule \(.id) \(.title): \(.why // "")", (.failures[]? | "  \(.case): \(.text)", "  again: \(.replay)")),
        "\($rules | map(select(.status == "pass")) | length) rules pass, \(
            $rules | map(select(.status == "fail")) | length) fail, \(
            $rules | map(select(.status == "not_advertised")) | length) are not advertised",
        .text // empty' "$report" || cat "$report"
    ((status == 0)) &&
        jq -e '[.providers[].rules[].status] | (index("pass") != null and index("fail") == null)' "$report" >/dev/null
}

when_wanted() { # NAME COMMAND...
    [[ -n $wanted && ! $1 =~ $wanted ]] || tap "$@"
}

no_kernel() {
    cat "${scratch:?}/kernel"
    return 1
}

# in_guest NAME COMMAND...: a case, if it is wanted, that runs in a guest with soft RoCE, whose kernel
# `linux` is made for the first of them. Where this machine cannot make it, the case is skipped.
linux='' kernel_status=0
in_guest() {
    [[ -z $wanted || $1 =~ $wanted ]] || return 0
    if [[ -z $linux ]] && ((kernel_status == 0)); then
        linux=$("$root/tests/soft_rdma/kernel" 2>"${scratch:?}/kernel") || kernel_status=$?
    fi
    case $kernel_status in
    0) tap "$@" ;;
    77) tap_skip "$1" "$(sed -n 's/^soft-RDMA kernel: //p' "${scratch:?}/kernel" | tail -n 1)" ;;
    *) tap "$1" no_kernel ;;
    esac
}
