# SPDX-License-Identifier: BSD-2-Clause-Patent
# The plug-in's objects in one program with the simulated device, which stands in for libibverbs and librdmacm.
if(TARGET rdmux_verbs)
    get_target_property(verbs_sources rdmux_verbs SOURCES)
    list(FILTER verbs_sources INCLUDE REGEX "/(verbs|roce|iwarp)/[^/]*\\.c$")
    target_sources(${test} PRIVATE ${verbs_sources})
    target_link_libraries(${test} PRIVATE sim_verbs)
else()
    set_target_properties(${test} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
