# SPDX-License-Identifier: BSD-2-Clause-Patent
include(${PROJECT_SOURCE_DIR}/tests/unit/support/simulated_adapter.cmake)
target_link_options(${test} PRIVATE -Wl,--wrap=ibv_get_device_list)
