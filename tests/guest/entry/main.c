// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A hypervisor for one test, as far as a kernel can see: it runs on a bare machine, loads the
 * kernel where it is linked, and enters it at its VMI entry with a layer that it does not place
 * itself. The kernel has all privilege.
 */
#include <paravane/vmi.h>

#include "entry.h"

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;

struct start_info {
	u32 magic, version, flags, module_count;
	u64 modules, command_line, rsdp, memory_map;
	u32 memory_map_count, reserved;
};

struct module {
	u64 start, size, command_line, reserved;
};

struct memory {
	u64 start, size;
	u32 type, reserved;
};

struct files {
	u64 magic, kernel, rom, initrd;		/* sizes */
};

struct elf {
	u8 ident[16];
	u16 type, machine;
	u32 version;
	u64 entry, programs, sections;
	u32 flags;
	u16 size, program_size, program_count;
};

struct program {
	u32 type, flags;
	u64 offset, vaddr, paddr, filesz, memsz, align;
};

u64 load(u32 start_gpa);

static struct vmi_boot_info info;
u64 info_address;
static char line[1024];
static u8 rom[255 * 512];

void *memcpy(void *to, const void *from, unsigned long size)
{
	for (unsigned long i = 0; i < size; i++)
		((u8 *)to)[i] = ((const u8 *)from)[i];
	return to;
}

void *memset(void *to, int value, unsigned long size)
{
	for (unsigned long i = 0; i < size; i++)
		((u8 *)to)[i] = value;
	return to;
}

static void __attribute__((noreturn)) stop(const char *why)
{
	for (; *why; why++)
		__asm__ volatile("outb %0, %1" : : "a"(*why), "Nd"((u16)0x3f8));
	for (;;)
		__asm__ volatile("cli; hlt");
}

/* Addresses below 4 GiB are mapped as they are. */
static void *at(u64 gpa)
{
	return (void *)gpa;
}

static void add_memory(u64 start, u64 end, u32 kind)
{
	if (start >= end)
		return;
	if (info.mem_count == VMI_BOOT_MAX_MEM)
		stop("entry: too many kinds of memory\n");
	info.mem[info.mem_count++] = (struct vmi_mem){ .gpa = start, .size = end - start,
							.kind = kind };
}

static void memory_map(const struct start_info *start)
{
	const struct memory *map = at(start->memory_map);

	for (u32 i = 0; i < start->memory_map_count; i++) {
		u64 from = map[i].start, to = from + map[i].size;
		u32 kind = map[i].type == 1 ? VMI_MEM_RAM : VMI_MEM_RESERVED;

		if (kind == VMI_MEM_RAM && from <= OWN_START && to >= OWN_END) {
			add_memory(from, OWN_START, kind);
			add_memory(OWN_START, OWN_END, VMI_MEM_RESERVED);
			from = OWN_END;
		}
		add_memory(from, to, kind);
	}
}

/* Loads the kernel's file. Returns its VMI entry, a linear address. */
static u64 load_kernel(const u8 *file)
{
	const struct elf *elf = (const struct elf *)file;
	u64 entry = 0, first = ~0ULL, last = 0;

	for (u32 i = 0; i < elf->program_count; i++) {
		const struct program *p = (const struct program *)
			(file + elf->programs + i * elf->program_size);

		if (p->type == 1) {
			memcpy(at(p->paddr), file + p->offset, p->filesz);
			memset(at(p->paddr + p->filesz), 0, p->memsz - p->filesz);
			first = p->paddr < first ? p->paddr : first;
			last = p->paddr + p->memsz > last ? p->paddr + p->memsz : last;
			continue;
		}
		/* Notes: sizes of name and content, kind, name, content; each in words. */
		for (u64 note = 0; p->type == 4 && note + 12 <= p->filesz;) {
			const u32 *words = (const u32 *)(file + p->offset + note);

			if (words[0] == 4 && words[2] == VMI_NOTE_ENTRY && words[3] == 0x494d56)
				memcpy(&entry, words + 4, sizeof(entry));
			note += 12 + ((words[0] + 3) & ~3u) + ((words[1] + 3) & ~3u);
		}
	}
	info.image_gpa = first;
	info.image_size = last - first;
	info.image = 0xffffffff80000000 + first;
	return entry;
}

static int has_word(const char *in, const char *word)
{
	for (; *in; in++) {
		u32 i = 0;

		while (word[i] && in[i] == word[i])
			i++;
		if (!word[i])
			return 1;
	}
	return 0;
}

u64 load(u32 start_gpa)
{
	const struct start_info *start = at(start_gpa);
	const struct module *module = at(start->modules);
	const struct files *files = at(start->module_count ? module->start : 0);
	const char *text = at(start->command_line);
	const u8 *file = (const u8 *)(files + 1);
	u64 entry;

	if (!start->module_count || files->magic != MAGIC || files->rom > sizeof(rom))
		stop("entry: no files\n");
	info.magic = VMI_BOOT_MAGIC;
	/* As a hypervisor without devices. The bytes after `size` are not part of the structure. */
	info.size = __builtin_offsetof(struct vmi_boot_info, devices);
	memset(&info.devices, 0xff, sizeof(info) - info.size);
	info.api_version = VMI_API_VERSION;
	info.direct_map = DIRECT_MAP;
	info.direct_map_size = 4ULL << 30;
	info.user_end = 0x7ffffffff000;
	info.vcpu_count = 1;
	memory_map(start);
	entry = load_kernel(file);
	memcpy(rom, file + files->kernel, files->rom);
	/* More than the ROM is mapped there. */
	info.rom_size = files->rom ? 1 << 20 : 0;
	info.rom = files->rom ? DIRECT_MAP + (u64)rom : 0;
	info.initrd_gpa = (u64)file + files->kernel + files->rom;
	info.initrd_size = files->initrd;
	for (u32 i = 0; start->command_line && i < sizeof(line) - 1 && text[i]; i++)
		line[i] = text[i];
	info.command_line = DIRECT_MAP + (u64)line;
	if (has_word(line, "entry.rom=low"))
		info.rom = (u64)rom;
	info_address = DIRECT_MAP + (u64)&info;
	if (!entry)
		stop("entry: the kernel has no VMI entry\n");
	return entry;
}
