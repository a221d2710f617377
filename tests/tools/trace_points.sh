#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Compares the trace points in librdmux.so, as readelf(1) reads them, with the list in
# docs/OBSERVABILITY.md. --can: only tells whether this is possible here, and if not, why not.
#
# RDMUX_BUILD is the build.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
library=$build/lib/librdmux.so

have readelf || die 'readelf is not installed'
[[ -e $library ]] || die "there is no $library"
if grep -q '^RDMUX_SDT_INCLUDE:.*-NOTFOUND' "$build/CMakeCache.txt"; then
    die 'the library is built without sys/sdt.h (Debian: systemtap-sdt-dev)'
fi
if [[ ${1:-} == --can ]]; then
    exit 0
fi

# NAME ARGUMENTS, a line each
built() {
    readelf --notes "$library" | awk '
        $1 == "Provider:" { provider = $2 }
        $1 == "Name:" { name = $2 }
        $1 == "Arguments:" && provider == "rdmux" { print name, NF - 1 }' | LC_ALL=C sort -u
}

documented() {
    awk '/^## / { here = $0 == "## Trace points" }
        here && /^\| `[a-z_]+` \|/ {
            split($0, cells, "|")
            gsub(/[` ]/, "", cells[2])
            print cells[2], split(cells[3], arguments, ",")
        }' "$root/docs/OBSERVABILITY.md" | LC_ALL=C sort -u
}

[[ -n $(documented) ]] || die 'docs/OBSERVABILITY.md lists none'
diff <(documented) <(built) || die 'documented (<) and built (>) trace points differ'
