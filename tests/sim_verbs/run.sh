#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# The simulated RDMA device's own tests, all programs one after the other, each with its own plan. Where the
# headers of rdma-core are missing they are not built, and that is a skip.
set -euo pipefail
: "${RDMUX_BUILD:?the folder the tests were built in}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset SIM_VERBS
export CMOCKA_MESSAGE_OUTPUT=TAP

if ! grep -qs '^RDMUX_VERBS_INCLUDE:PATH=.*/' "$RDMUX_BUILD/CMakeCache.txt"; then
    echo '1..0 # SKIP the headers of libibverbs and librdmacm are not installed'
    exit 77
fi
if ! grep -qs '^CMOCKA_FOUND:INTERNAL=1' "$RDMUX_BUILD/CMakeCache.txt"; then
    echo '1..0 # SKIP cmocka is not installed'
    exit 77
fi
status=0
for source in "$here"/test_*.c; do
    "$RDMUX_BUILD/tests/sim_verbs/$(basename "$source" .c)" || status=1
done

# The conformance suite over the providers that call libibverbs: what they get are simulated adapters.
for provider in ib roce; do
    [[ -e $RDMUX_BUILD/lib/rdmux/rdmux-verbs.so ]] || break
    LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so SIM_VERBS=link=$provider \
        "$RDMUX_BUILD/bin/rdmux-conformance" --quick --patience 2 --provider "$provider" || status=1
done
exit "$status"
