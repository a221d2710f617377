# SPDX-License-Identifier: BSD-2-Clause-Patent
# Toolchain file: cross compiles for 64-bit ARM with Debian's gcc-aarch64-linux-gnu. OpenSSL and
# rdma-core are those of Debian's packages for arm64, where they are installed (libssl-dev:arm64,
# libibverbs-dev:arm64, librdmacm-dev:arm64). qemu-user runs what is built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu /usr)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
find_program(RDMUX_QEMU_AARCH64 qemu-aarch64)
if(RDMUX_QEMU_AARCH64)
    set(CMAKE_CROSSCOMPILING_EMULATOR ${RDMUX_QEMU_AARCH64} -L /usr/aarch64-linux-gnu)
endif()
# pkg-config knows the packages of this machine else.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
