#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# threads.sh [NAME=VALUE...] OPTION...: the conformance suite's cases in which threads meet, for the thread
# sanitizer: set-up, progress and the end of endpoints, revocation, wake-ups. In the other cases one thread does
# everything. Variables and options are for rdmux conformance. Prints TAP, with a plan for each of two runs.
set -euo pipefail
: "${RDMUX_BUILD:?the folder rdmux was built in}"
readonly rules=6.6,6.7,6.13,7,8,9,10,11,13.8,13.9,15.2,15.3,15.9,15.10,N.2,N.12,N.14,F.2,S.7
variables=()
while (($# > 0)) && [[ $1 == [A-Z]*=* ]]; do
    variables+=("$1")
    shift
done
status=0
for some in --rules=$rules --case=thread; do
    env "${variables[@]}" "$RDMUX_BUILD/bin/rdmux" conformance --format tap "$@" "$some" || status=1
done
exit "$status"
