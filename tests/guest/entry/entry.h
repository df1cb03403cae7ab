/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Where the hypervisor has its direct map: not where Linux has its own. */
#define DIRECT_MAP_SLOT 300
#define DIRECT_MAP 0xffff960000000000

/* This program, which the kernel must leave alone. */
#define OWN_START 0x100000
#define OWN_END 0x400000

/* Before the kernel's file, the layer's and the initial RAM disk, in this order. */
#define MAGIC 0x5041524156414e45
