#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Each allocation and each call of the library to the system, to OpenSSL and to libibverbs fails in
# turn; prints TAP. --thorough runs all points, else a sample of each case.
set -euo pipefail
: "${RDMUX_BUILD:?the folder the tests were built in}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/lib.sh
. "$here/../../scripts/lib.sh"
declare -A points=([quick]=3 [normal]=5 [thorough]=0) lives=([quick]=1 [normal]=2 [thorough]=5)
level=${RDMUX_TEST_LEVEL:-normal}
fault=$RDMUX_BUILD/tests/fault/fault
if [[ ! -x $fault ]]; then
    echo '1..0 # SKIP OpenSSL was not there when this was built'
    exit 77
fi
status=0
"$fault" --points "${points[$level]}" || status=1
# No call fails: only signals and forks occur.
"$fault" --signals "${lives[$level]}" || status=1
"$fault" --forks "${lives[$level]}" || status=1

# shellcheck disable=SC2317 # tap calls it
# every_call_is_known: each function that the built library calls can fail here, or is in
# cannot_fail.
every_call_is_known() {
    local name called bare known=0
    local -A can=()
    for name in $("$fault" --list; grep -v '^#' "$here/cannot_fail"); do
        can[$name]=yes
    done
    called=$(nm -D --undefined-only "$RDMUX_BUILD"/lib/librdmux.so "$RDMUX_BUILD"/lib/rdmux/*.so |
        sed -nE 's/^ +U ([A-Za-z0-9_]+).*/\1/p' | sort -u)
    for name in $called; do
        # Functions of this library, of the compiler, and those that only touch existing memory.
        [[ ! $name =~ ^(rdmux_|__|mem|str|sn?printf) ]] || continue
        known=$((known + 1))
        bare=${name#ibv_}
        bare=${bare#rdma_}
        if [[ ! -v can[$name] && ! -v can[$bare] ]]; then
            echo "$name can neither be made to fail by tests/fault nor is it in cannot_fail"
            known=-1000
        fi
    done
    ((known > 100))
}
tap 'each function that the library calls can be made to fail here, or cannot fail' every_call_is_known
tap_end || status=1
exit "$status"
