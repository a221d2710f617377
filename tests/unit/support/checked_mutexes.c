/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* checked_mutexes.cmake makes the linker send each initialization and unlock of a mutex here. */
#include "tests/unit/support/checked_mutexes.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static _Atomic size_t wrong_unlock_count;

int __real_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
    pthread_mutexattr_t checking;
    assert_null(attr);
    assert_int_equal(pthread_mutexattr_init(&checking), 0);
    assert_int_equal(pthread_mutexattr_settype(&checking, PTHREAD_MUTEX_ERRORCHECK), 0);
    int result = __real_pthread_mutex_init(mutex, &checking);
    (void)pthread_mutexattr_destroy(&checking);
    return result;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int result = __real_pthread_mutex_unlock(mutex);
    wrong_unlock_count += result != 0;
    return result;
}

size_t wrong_unlocks(void)
{
    return wrong_unlock_count;
}
