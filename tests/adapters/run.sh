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
# libfabric's provider verbs reads all of /proc/kallsyms twice in each process, to learn about peer
# memory: six times the processor time of the rest of libfabric's start. An empty one is read at once.
hide='mount --bind /dev/null /proc/kallsyms'
way=()
if unshare -m sh -c "$hide" 2>/dev/null; then
    way=(unshare -m sh -c "$hide && exec \"\$@\"" sh)
fi
status=0
for part in "${parts[@]}"; do
    "${way[@]}" bash "$here/$part.sh" || { (($? == 77)) || status=1; }
done
exit "$status"
