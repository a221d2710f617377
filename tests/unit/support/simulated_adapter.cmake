# SPDX-License-Identifier: BSD-2-Clause-Patent
# The plug-in's objects are linked with the simulated device, which stands in for libibverbs and
# librdmacm.
if(TARGET rdmux_verbs)
    # Credits come from the library.
    target_sources(${test} PRIVATE $<FILTER:$<TARGET_OBJECTS:rdmux_verbs>,EXCLUDE,/credits[.]c|/credit_scheduler[.]c>)
    target_link_libraries(${test} PRIVATE sim_verbs)
else()
    set_target_properties(${test} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
