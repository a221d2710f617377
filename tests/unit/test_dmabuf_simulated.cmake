# SPDX-License-Identifier: BSD-2-Clause-Patent
include(${PROJECT_SOURCE_DIR}/tests/unit/support/simulated_adapter.cmake)
# Memory files pass for dma-bufs.
target_link_options(${test} PRIVATE -Wl,--wrap=fstatfs -Wl,--wrap=ioctl -Wl,--wrap=process_vm_readv)
