#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Runs all parts of this folder: every other *.sh. Each prints TAP with its own plan, and runs alone,
# too.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
status=0
for part in "$here"/*.sh; do
    [[ ${part##*/} != run.sh ]] || continue
    printf '# %s\n' "${part##*/}"
    bash "$part" || status=1
done
exit "$status"
