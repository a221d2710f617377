# SPDX-License-Identifier: BSD-2-Clause-Patent
# The provider is driven by a small core of the test's own, whose functions stand before the library's.
target_link_options(${test} PRIVATE -Wl,--allow-multiple-definition)
