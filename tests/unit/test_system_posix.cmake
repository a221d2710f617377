# SPDX-License-Identifier: BSD-2-Clause-Patent
target_compile_definitions(${test} PRIVATE RDMUX_POSIX_ONLY=1)
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/api/system/system_posix.c
                               ${PROJECT_SOURCE_DIR}/api/system/poller_posix.c)
