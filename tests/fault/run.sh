#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Each allocation and each call of the library to the system fails in turn; prints TAP.
set -euo pipefail
: "${RDMUX_BUILD:?the folder the tests were built in}"
exec "$RDMUX_BUILD/tests/fault/fault"
