# SPDX-License-Identifier: BSD-2-Clause-Patent
# The plug-in's objects in one program with the simulated device, which stands in for libibverbs and librdmacm.
# The test makes soft iWARP of an adapter.
if(TARGET rdmux_verbs)
    get_target_property(verbs_sources rdmux_verbs SOURCES)
    list(FILTER verbs_sources INCLUDE REGEX "/(verbs|roce|iwarp)/[^/]*\\.c$")
    target_sources(${test} PRIVATE ${verbs_sources})
    target_link_libraries(${test} PRIVATE sim_verbs)
    target_link_options(${test} PRIVATE -Wl,--wrap=ibv_query_device -Wl,--wrap=ibv_reg_mr_iova2)
else()
    set_target_properties(${test} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
