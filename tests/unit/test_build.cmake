# SPDX-License-Identifier: BSD-2-Clause-Patent
target_compile_definitions(${test} PRIVATE RDMUX_PROJECT_VERSION="${PROJECT_VERSION}")
