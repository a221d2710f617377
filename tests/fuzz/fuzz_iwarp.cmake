# SPDX-License-Identifier: BSD-2-Clause-Patent
# The plug-in's pure parts need no RDMA headers.
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/iwarp/iwarp_connection.c
                               ${PROJECT_SOURCE_DIR}/iwarp/iwarp_credit.c
                               ${PROJECT_SOURCE_DIR}/iwarp/iwarp_message.c
                               ${PROJECT_SOURCE_DIR}/verbs/verbs_connection.c)
