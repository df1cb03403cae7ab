/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Preprocessed into the linker script. */
#include "kernel/layout.h"

OUTPUT_FORMAT(elf64-x86-64)
OUTPUT_ARCH(i386:x86-64)
ENTRY(vmi_entry)

PHDRS
{
	boot	PT_LOAD FLAGS(7);
	image	PT_LOAD FLAGS(7);
	note	PT_NOTE FLAGS(4);
}

SECTIONS
{
	/* Bare metal only, at its physical address. */
	. = 0x100000;
	.boot : { *(.boot.text) *(.boot.data) } :boot
	ASSERT(. <= IMAGE_PHYSICAL, "boot code runs into the image")

	. = IMAGE_LINK;
	image_start = .;
	.text : AT(IMAGE_PHYSICAL) {
		EXCLUDE_FILE(*native_*.o) *(.text .text.*)
	} :image
	/* Privileged instructions may stand in these three: see tools/checkimage.c. */
	.text.native : { *native_*.o(.text .text.*) } :image
	.text.bare : { *(.bare.text) } :image
	.text.user : ALIGN(4096) {
		user_text_start = .;
		*(.user.text)
		. = ALIGN(4096);
		user_text_end = .;
	} :image
	.rodata : { *(.rodata .rodata.*) } :image
	.vmi.sites : ALIGN(8) {
		vmi_sites_start = .;
		KEEP(*(.vmi.sites))
		vmi_sites_end = .;
	} :image
	.tests : ALIGN(8) {
		tests_start = .;
		KEEP(*(.tests))
		tests_end = .;
	} :image
	vmi_extable : ALIGN(4) {
		__start_vmi_extable = .;
		KEEP(*(vmi_extable))
		__stop_vmi_extable = .;
	} :image
	.note : ALIGN(4) { KEEP(*(.note.Xen)) KEEP(*(.note.VMI)) } :image :note
	.data : ALIGN(16) { *(.data .data.*) } :image
	.bss : ALIGN(4096) {
		*(.bss .bss.* COMMON)
		. = ALIGN(4096);
	} :image
	image_end = .;
	ASSERT(image_end - image_start <= 0x1000000, "the boot code maps 16 MiB of image")

	/DISCARD/ : { *(.note.gnu.*) *(.comment) *(.eh_frame*) *(.note.GNU-stack) }
}
