# SPDX-License-Identifier: BSD-2-Clause-Patent
# Memory files pass for dma-bufs, and drivers refuse to map them.
target_link_options(${test} PRIVATE -Wl,--wrap=fstatfs -Wl,--wrap=ioctl -Wl,--wrap=process_vm_readv
                                    -Wl,--wrap=mmap)
