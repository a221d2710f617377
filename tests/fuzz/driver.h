/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The function that a fuzz target defines; driver.c and clang's libFuzzer call it. */
#ifndef RDMUX_TESTS_FUZZ_DRIVER_H
#define RDMUX_TESTS_FUZZ_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* Runs one input, in a heap block of exactly size bytes. Returns 0; a finding crashes or aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
