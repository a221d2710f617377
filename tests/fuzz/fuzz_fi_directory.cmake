# SPDX-License-Identifier: BSD-2-Clause-Patent
# The pure part of the provider of libfabric needs no header of libfabric.
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/adapters/fi/fi_directory.c)
