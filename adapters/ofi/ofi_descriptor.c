/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Descriptors of libfabric. Its providers over sockets open them without FD_CLOEXEC. */
#include "adapters/ofi/ofi_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A socket is the endpoint's if it has the endpoint's own address, port included: no socket of the
 * program has that. */
void rdmux_ofi_close_on_exec(struct fid *fid)
{
    struct sockaddr_storage own;
    size_t own_length = sizeof(own);
    if (fid == NULL || fi_getname(fid, &own, &own_length) != 0 || own_length > sizeof(own) ||
        own_length < sizeof(sa_family_t) ||
        (own.ss_family != AF_INET && own.ss_family != AF_INET6)) {
        return;
    }
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        struct sockaddr_storage address;
        socklen_t length = sizeof(address);
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
            length == own_length && memcmp(&address, &own, length) == 0) {
            (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
    }
    if (all != NULL) {
        (void)closedir(all);
    }
}
