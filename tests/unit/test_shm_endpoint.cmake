# SPDX-License-Identifier: BSD-2-Clause-Patent
# To see which memory of a peer is asked for, and whether each mutex is unlocked by the thread that has it.
target_link_options(${test} PRIVATE -Wl,--wrap=process_vm_readv -Wl,--wrap=process_vm_writev
                                    -Wl,--wrap=pthread_mutex_init -Wl,--wrap=pthread_mutex_unlock)
