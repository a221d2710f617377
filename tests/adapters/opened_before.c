/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * opened_before: in a guest with soft RoCE, as root and with FI_PROVIDER=verbs. libfabric's paths over
 * verbs are usable for the process that lists them first; not for a child that is forked then, nor
 * for the process itself after it has given up a capability. Prints what differs, and ends with 1
 * then.
 */
#include <rdmux/rdmux.h>

#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATHS_MAX = 64 };

static void must(enum rdmux_status status)
{
    if (status != RDMUX_OK) {
        printf("%s: %s\n", rdmux_status_name(status), rdmux_last_error());
        exit(2);
    }
}

/* Returns whether this process, in a fabric of its own, has paths over connections of verbs, all with
 * this reason and these words in the text. */
static bool paths_are(enum rdmux_reason reason, const char *words)
{
    static struct rdmux_path_info paths[PATHS_MAX];
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    size_t count = 0;
    size_t seen = 0;
    bool are = true;
    for (size_t i = 0; i < PATHS_MAX; i++) {
        paths[i] = (struct rdmux_path_info)RDMUX_PATH_INFO_INIT;
    }
    attr.paths = "ofi";
    must(rdmux_fabric_open(&attr, &fabric));
    must(rdmux_fabric_paths(fabric, paths, PATHS_MAX, &count));
    for (size_t i = 0; i < count && i < PATHS_MAX; i++) {
        if (strcmp(paths[i].provider, "ofi") != 0 ||
            strncmp(paths[i].device, "verbs:", strlen("verbs:")) != 0) {
            continue;
        }
        seen++;
        if (paths[i].reason != (uint32_t)reason || strstr(paths[i].text, words) == NULL) {
            printf("%s: %s (%s), not %s (...%s...)\n", paths[i].device,
                   rdmux_reason_name((enum rdmux_reason)paths[i].reason), paths[i].text,
                   rdmux_reason_name(reason), words);
            are = false;
        }
    }
    must(rdmux_fabric_close(fabric));
    if (seen == 0) {
        printf("there is no path over verbs\n");
    }
    return are && seen > 0;
}

static bool child_has_none(void)
{
    int status = 0;
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        exit(paths_are(RDMUX_REASON_CAPABILITY_MISSING, "before this process was forked") ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

static bool give_up_a_capability(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct capabilities[_LINUX_CAPABILITY_U32S_3];
    const __u32 mask = (__u32)1 << CAP_SYS_PTRACE;
    if (syscall(SYS_capget, &header, capabilities) != 0 || (capabilities[0].effective & mask) == 0) {
        printf("this process has no capability to give up\n");
        return false;
    }
    capabilities[0].effective &= ~mask;
    return syscall(SYS_capset, &header, capabilities) == 0;
}

int main(void)
{
    const bool well = paths_are(RDMUX_REASON_USABLE, "provider verbs") && child_has_none() &&
                      paths_are(RDMUX_REASON_USABLE, "provider verbs") && give_up_a_capability() &&
                      paths_are(RDMUX_REASON_CAPABILITY_MISSING, "capabilities");
    return well ? 0 : 1;
}
