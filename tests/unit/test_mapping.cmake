# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test plays kernels that lack the ioctl() for mappings.
target_link_options(${test} PRIVATE -Wl,--wrap=ioctl)
