# SPDX-License-Identifier: BSD-2-Clause-Patent
rdmux_sources_in(adapters/framed framed_sources)
target_sources(${test} PRIVATE ${framed_sources})
