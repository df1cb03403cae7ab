/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The kernel's side of the VMI's image format: checking a layer's header,
 * finding layers and calls in it, and patching the kernel's sites. Depends on
 * nothing but paravane/vmi.h, so that any kernel (and a host test) can use it.
 *
 * A struct vmi_rom is only made by vmi_rom_check(); every other function relies
 * on what that has checked and stays inside the image.
 */
#ifndef VMI_ROM_H
#define VMI_ROM_H

#include <paravane/vmi.h>

/* Why an image is no layer, or why its records cannot be applied. */
enum vmi_rom_error {
	VMI_ROM_OK = 0,
	VMI_ROM_NO_ROM,		/* no option ROM here */
	VMI_ROM_NO_LAYER,	/* an option ROM, but not a VMI layer */
	VMI_ROM_LENGTH,		/* length is zero or goes past the end */
	VMI_ROM_CHECKSUM,
	VMI_ROM_MAJOR,		/* another major API version */
	VMI_ROM_HEADER_SIZE,
	VMI_ROM_IMAGE_SIZE,
	VMI_ROM_LOAD_SIZE,
	VMI_ROM_PERCPU_SIZE,
	VMI_ROM_RESERVE,	/* reserve_end below reserve_start */
	VMI_ROM_SECTIONS,	/* section table or a section outside the image */
	VMI_ROM_TWICE,		/* a section appears twice */
	VMI_ROM_CALLS,		/* call table or an entry outside the image */
	VMI_ROM_EXTABLE,	/* exception table or an entry outside the image */
	VMI_ROM_RELOC,		/* unknown relocation, or one unfit for its call */
	VMI_ROM_INLINE,		/* inline code of length 0 or over the maximum */
	VMI_ROM_SITE,		/* a site shorter than 5 bytes */
	VMI_ROM_REACH,		/* a site farther than 2 GiB from the layer */
	VMI_ROM_ABSENT,		/* VMI_HEADER_PARAVIRT, and a site's call is absent */
};

/* Where an image came from decides what is required of it. */
enum vmi_rom_source {
	VMI_ROM_FROM_SCAN,	/* option ROM: the checksum must be right */
	VMI_ROM_FROM_BOOT_INFO,	/* handed over by a hypervisor */
};

struct vmi_rom {
	const __u8 *image;
	struct vmi_rom_header header;
};

/* A replacement for one site, as vmi_rom_site_code() makes it. */
struct vmi_site_code {
	__u8 length;		/* 0: leave the site as it is */
	__u8 code[255];
};

/* Writes length bytes of kernel text; the kernel knows how that is done. */
typedef void vmi_text_write_fn(void *to, const void *from, unsigned int length);

/*
 * Checks the image at address; available bytes may be read there. On VMI_ROM_OK
 * (and only then) *rom is filled in.
 */
enum vmi_rom_error vmi_rom_check(struct vmi_rom *rom, const void *image,
				 __u64 available, enum vmi_rom_source source);

/* Why, in words, for a message. */
const char *vmi_rom_strerror(enum vmi_rom_error error);

/*
 * The next option ROM that claims to be a layer, in size bytes from start,
 * beginning at *offset (0 at first). Returns false at the end. *error says
 * whether the ROM at *found is usable; *offset is advanced past it.
 */
int vmi_rom_scan(struct vmi_rom *rom, const void *start, __u64 size,
		 __u64 *offset, __u64 *found, enum vmi_rom_error *error);

/*
 * The section as a kernel written for kernel_version of it may use it: 1 and
 * *section, or 0 where it is absent or has dropped such kernels.
 */
int vmi_rom_section(const struct vmi_rom *rom, unsigned int id,
		    unsigned int kernel_version, struct vmi_section *section);

/* The same for a kernel written for this vmi.h. */
int vmi_rom_usable(const struct vmi_rom *rom, unsigned int id,
		   struct vmi_section *section);

/*
 * The record of a call for a kernel written for this vmi.h, read from the
 * loaded image at base (records are final once core.init has returned).
 */
int vmi_rom_call(const struct vmi_rom *rom, const void *base,
		 unsigned int call, struct vmi_call_entry *entry);

/* What becomes of the site; nothing is written. */
enum vmi_rom_error vmi_rom_site_code(const struct vmi_rom *rom, const void *base,
				     const struct vmi_site *site,
				     struct vmi_site_code *code);

/*
 * Applies the records of the layer loaded at base to the sites. All are
 * checked first: on an error no byte of text has been written. *patched counts
 * the sites that were changed.
 */
enum vmi_rom_error vmi_rom_patch(const struct vmi_rom *rom, const void *base,
				 const struct vmi_site *start,
				 const struct vmi_site *end,
				 vmi_text_write_fn *write, unsigned int *patched);

/* The address to go on with after a fault of the layer at rip, or 0. */
__u64 vmi_rom_fixup(const struct vmi_rom *rom, const void *base, __u64 rip);

#endif
