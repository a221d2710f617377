# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test reads the public header, and itself.
target_compile_definitions(${test} PRIVATE RDMUX_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
