# SPDX-License-Identifier: BSD-2-Clause-Patent
# The check needs no header of UCX.
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/adapters/ucx/ucx_environment.c)
