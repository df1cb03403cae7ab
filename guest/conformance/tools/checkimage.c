// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * checkimage IMAGE < DISASSEMBLY
 *
 * Checks two rules after linking that the compiler cannot enforce:
 *
 * - Common code has no privileged instruction except at an annotated site. The program compares the
 * disassembly (objdump -d -w --no-show-raw-insn) with the records of .vmi.sites. Sections in
 * `exempt` only run on bare metal, or in user mode on purpose.
 * - A loader can move the image to where addresses fit into 31 bits, because all of its relocations
 * are of the kinds in `movable` (--emit-relocs keeps them).
 *
 * The program trusts the structure of its input: the build has just made it.
 */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SITE_RECORD 8

static const char *const exempt[] = {
	".boot",		/* the way from the 32-bit entry */
	".text.native",		/* the native layer, linked in */
	".text.bare",		/* what the benchmark compares with */
	".text.user",		/* user programs that try what they may not */
};

/* The first words of a line of disassembly. A trailing * matches any rest. */
static const char *const privileged[] = {
	"cli", "sti", "hlt", "lgdt", "lidt", "lldt", "ltr", "sgdt", "sidt",
	"sldt", "str", "smsw", "lmsw", "clts", "invlpg", "invd", "wbinvd",
	"wbnoinvd", "invpcid", "rdmsr", "wrmsr", "rdpmc", "rdtsc", "rdtscp",
	"cpuid", "swapgs", "in", "out", "ins*", "outs*", "iret*", "sysret*",
	"sysexit*", "sysenter", "syscall", "xsetbv", "lret*", "retf*", "ljmp*",
	"lcall*", "monitor", "mwait", "stac", "clac", "rdfsbase", "rdgsbase",
	"wrfsbase", "wrgsbase", "vmcall", "vmmcall",
};

static const uint32_t movable[] = {
	R_X86_64_64, R_X86_64_PC32, R_X86_64_PLT32, R_X86_64_32S, R_X86_64_PC64,
};

struct range {
	uint64_t start, end;
};

static struct range *sites, skip[16];
static size_t site_count, skip_count;
static const Elf64_Ehdr *header;
static const Elf64_Shdr *sections;
static const char *names;
static int errors;

static void *load(const char *path)
{
	FILE *file = fopen(path, "rb");
	char *data = NULL;
	size_t size = 0, room = 0;

	if (!file) {
		perror(path);
		exit(2);
	}
	for (;;) {
		if (size == room)
			data = realloc(data, room = room ? 2 * room : 1 << 20);
		if (!data)
			abort();
		size_t n = fread(data + size, 1, room - size, file);

		if (!n)
			break;
		size += n;
	}
	fclose(file);
	return data;
}

static void read_sites(const Elf64_Shdr *section)
{
	const uint8_t *base = (const uint8_t *)header + section->sh_offset;
	size_t i;

	site_count = section->sh_size / SITE_RECORD;
	sites = calloc(site_count, sizeof(*sites));
	if (!sites)
		abort();
	for (i = 0; i < site_count; i++) {
		int32_t offset;
		uint64_t at = section->sh_addr + i * SITE_RECORD;

		memcpy(&offset, base + i * SITE_RECORD, sizeof(offset));
		sites[i].start = at + (int64_t)offset;
		sites[i].end = sites[i].start + base[i * SITE_RECORD + 6];
	}
}

static int is_exempt(const char *name)
{
	for (size_t i = 0; i < sizeof(exempt) / sizeof(*exempt); i++)
		if (!strcmp(name, exempt[i]))
			return 1;
	return 0;
}

static void check_relocations(const Elf64_Shdr *section)
{
	const Elf64_Rela *rela = (const void *)((const char *)header + section->sh_offset);
	const char *name = names + section->sh_name;
	size_t count = section->sh_size / sizeof(*rela), i, k;

	/* Relocations of a section that is not loaded, or that a loader does not move. */
	if (!(sections[section->sh_info].sh_flags & SHF_ALLOC) ||
	    !strcmp(name, ".rela.boot"))
		return;
	for (i = 0; i < count; i++) {
		uint32_t type = ELF64_R_TYPE(rela[i].r_info);

		for (k = 0; k < sizeof(movable) / sizeof(*movable); k++)
			if (type == movable[k])
				break;
		if (type == R_X86_64_NONE || k < sizeof(movable) / sizeof(*movable))
			continue;
		fprintf(stderr, "%s: relocation of kind %u at 0x%llx cannot be moved\n",
			name, type, (unsigned long long)rela[i].r_offset);
		errors++;
	}
}

static int inside(uint64_t address, const struct range *ranges, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (address >= ranges[i].start && address < ranges[i].end)
			return 1;
	return 0;
}

static int matches(const char *word, const char *pattern)
{
	size_t n = strlen(pattern);

	if (pattern[n - 1] == '*')
		return !strncmp(word, pattern, n - 1);
	return !strcmp(word, pattern);
}

static int needs_privilege(char *text)
{
	char *word = strtok(text, " \t\n");

	/* Skip prefixes. */
	while (word && (!strcmp(word, "cs") || !strcmp(word, "ds") ||
			!strncmp(word, "rep", 3) || !strcmp(word, "lock") ||
			!strcmp(word, "data16") || !strncmp(word, "rex", 3)))
		word = strtok(NULL, " \t\n");
	if (!word)
		return 0;
	for (size_t i = 0; i < sizeof(privileged) / sizeof(*privileged); i++)
		if (matches(word, privileged[i]))
			return 1;
	/* Moves to and from control and debug registers. */
	if (!strncmp(word, "mov", 3)) {
		char *operands = strtok(NULL, "\n");

		return operands && (strstr(operands, "%cr") || strstr(operands, "%db") ||
				    strstr(operands, "%dr"));
	}
	return 0;
}

static void check_instructions(void)
{
	char line[1024], copy[1024], function[256] = "?";

	while (fgets(line, sizeof(line), stdin)) {
		unsigned long long address;
		char *text = strchr(line, ':');

		if (sscanf(line, "%llx <%255[^>]>:", &address, function) == 2)
			continue;
		if (!text || sscanf(line, " %llx:", &address) != 1)
			continue;
		if (inside(address, skip, skip_count) ||
		    inside(address, sites, site_count))
			continue;
		snprintf(copy, sizeof(copy), "%s", text + 1);
		if (needs_privilege(copy)) {
			fprintf(stderr, "%s: outside of a site:%s", function, text + 1);
			errors++;
		}
	}
}

int main(int argc, char **argv)
{
	size_t i;

	if (argc != 2) {
		fprintf(stderr, "usage: checkimage IMAGE < DISASSEMBLY\n");
		return 2;
	}
	header = load(argv[1]);
	sections = (const void *)((const char *)header + header->e_shoff);
	names = (const char *)header + sections[header->e_shstrndx].sh_offset;
	for (i = 0; i < header->e_shnum; i++) {
		const Elf64_Shdr *section = &sections[i];
		const char *name = names + section->sh_name;

		if (!strcmp(name, ".vmi.sites"))
			read_sites(section);
		if (section->sh_type == SHT_RELA)
			check_relocations(section);
		if (is_exempt(name))
			skip[skip_count++] = (struct range){
				section->sh_addr, section->sh_addr + section->sh_size,
			};
	}
	if (!site_count) {
		fprintf(stderr, "%s: no .vmi.sites\n", argv[1]);
		return 1;
	}
	check_instructions();
	if (errors)
		fprintf(stderr, "%s: %d errors\n", argv[1], errors);
	return errors != 0;
}
