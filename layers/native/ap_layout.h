/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The page below 1 MiB in which an application processor starts. smp.c fills it, and ap_start.S
 * runs in it.
 *
 * The page is also the processor's first page table, at all levels at once: entry 0 points to the
 * page itself. The entry of the page's own number also points to it, as a mapping. A walk for an
 * address in the page takes entry 0 down to the last level. So the processor reaches 64-bit mode,
 * with 4 or 5 levels, before it loads a CR3 that may be above 4 GiB. Entry 0 replaces the first
 * instruction, which has been executed by then. Code and data follow the entries of all pages below
 * 1 MiB.
 */
#ifndef NATIVE_AP_LAYOUT_H
#define NATIVE_AP_LAYOUT_H

#define AP_CODE 0x800 /* ap_start.S */
#define AP_CODE_MAX 0x200
#define AP_STATE 0xc00 /* struct vmi_ap_state */
#define AP_GDT 0xd00 /* of ap_start.S: null, 32-bit code, data, 64-bit code */
#define AP_GDT_WORDS 4
#define AP_SELECTOR_CODE32 0x08
#define AP_SELECTOR_DATA 0x10
#define AP_SELECTOR_CODE64 0x18
#define AP_PAGE 0xd20 /* u32: address of the page */
#define AP_CR4 0xd24 /* u32: CR4 before paging */
#define AP_BOOT_GDTR 0xd28 /* u16 limit, u32 base */
#define AP_FAR32 0xd30 /* u32 offset, u16 selector */
#define AP_FAR64 0xd38
#define AP_GDTR 0xd40 /* struct vmi_table_register */
#define AP_IDTR 0xd50
#define AP_FRAME 0xd60 /* rip cs rflags rsp ss */

#define AP_FRAME_WORDS 5

#endif
