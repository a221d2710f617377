# SPDX-License-Identifier: BSD-2-Clause-Patent
include(${PROJECT_SOURCE_DIR}/tests/unit/support/recorded_mail.cmake)
# The test sees threads that wait for a condition.
target_link_options(${test} PRIVATE -Wl,--wrap=pthread_cond_wait)
