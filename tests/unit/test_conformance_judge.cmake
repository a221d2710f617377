# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test has cases of its own, and uses the rules and the judge of the suite.
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/tools/conformance_judge.c
                               ${PROJECT_SOURCE_DIR}/tests/conformance/rules.c)
