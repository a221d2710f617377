# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test plays kernels that do not answer questions about mappings.
target_link_options(${test} PRIVATE -Wl,--wrap=ioctl)
