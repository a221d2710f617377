# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test brings cases of its own: of the suite it takes the rules and what judges them.
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/tools/conformance_judge.c
                               ${PROJECT_SOURCE_DIR}/tests/conformance/rules.c)
