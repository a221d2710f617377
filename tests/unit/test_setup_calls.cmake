# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test counts the library's calls, and sees its sockets.
foreach(call recv recvmsg send sendmsg read write connect setsockopt getsockopt getsockname
        getpeername epoll_ctl fcntl close getrlimit getrandom mmap munmap memfd_create ftruncate
        socket accept4)
  target_link_options(${test} PRIVATE -Wl,--wrap=${call})
endforeach()
