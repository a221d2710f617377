#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# The adapters: other libraries' networks under rdmux, and rdmux under other libraries. Each part is a
# script beside this one that prints TAP with a plan of its own.
#
#   run.sh [PART...]   say "run.sh ofi"; all parts if none is named
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
parts=("$@")
if ((${#parts[@]} == 0)); then
    for file in "$here"/*.sh; do
        part=$(basename "$file" .sh)
        [[ $part == run ]] || parts+=("$part")
    done
fi
status=0
for part in "${parts[@]}"; do
    bash "$here/$part.sh" || { (($? == 77)) || status=1; }
done
exit "$status"
