# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
# The conformance suite over an adapter, for ofi.sh and ucx.sh, which have set build.
: "${build:?}"

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
