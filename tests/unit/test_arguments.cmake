# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test reads the public header, and its own source.
target_compile_definitions(${test} PRIVATE RDMUX_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
