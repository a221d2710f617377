# SPDX-License-Identifier: BSD-2-Clause-Patent
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/adapters/framed/framed_frame.c)
