# SPDX-License-Identifier: BSD-2-Clause-Patent
# The plug-in's pure parts need no RDMA headers.
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/verbs/verbs_connection.c
                               ${PROJECT_SOURCE_DIR}/verbs/verbs_description.c)
